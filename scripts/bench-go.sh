#!/bin/sh
# Runs the Go benchmarks of the stores, and fails if a package has none: go test is content then.
set -eu
cd -- "$(dirname -- "$0")/.."
out=$(mktemp "${TMPDIR:-/tmp}/tickslot-bench.XXXXXX")
trap 'rm -f "$out" "$out.code"' EXIT

# bench runs the benchmarks of one package; it is the last argument.
bench() {
	{
		code=0
		go test -run '^$' -bench . "$@" 2>&1 || code=$?
		echo "$code" >"$out.code"
	} | tee "$out"
	code=$(cat "$out.code")
	[ "$code" -eq 0 ] || exit "$code"
	grep -q '^Benchmark' "$out" || { echo "bench-go: no benchmark ran: $*" >&2; exit 1; }
}

bench -benchmem ./dlock/redislock
bench -benchtime 1x ./dlock/sqllock
bench -benchtime 200x ./proof/registrycost
