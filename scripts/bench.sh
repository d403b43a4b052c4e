#!/bin/sh
# usage: scripts/bench.sh WHAT
#
# Runs one kind of measurement. Without an argument, lists the kinds.
set -eu
cd -- "$(dirname -- "$0")/.."

# rivals runs the benchmarks against rival libraries. Programs may read the last line, so the
# installation of servers prints to standard error.
rivals() {
	sh scripts/servers.sh >&2
	cd proof/benchmarks
	go run . "$@"
}

# stores runs the Go benchmarks of one package, the last argument. It fails if the package has no
# benchmark, because go test does not.
stores() {
	{
		code=0
		go test -run '^$' -bench . "$@" 2>&1 || code=$?
		echo "$code" >"$out.code"
	} | tee "$out"
	code=$(cat "$out.code")
	[ "$code" -eq 0 ] || exit "$code"
	grep -q '^Benchmark' "$out" || { echo "bench: no benchmark ran: $*" >&2; exit 1; }
}

case ${1:-} in
all) ## beside every rival: an hour, writes proof/benchmarks/RESULTS.md and its plots
	rivals -results .
	;;
durable) ## the part of it about durable runs: 35 minutes, leaves the rest of RESULTS.md as it is
	rivals -only '^durable' -results .
	;;
outbox) ## the part of it about the outbox: 15 minutes, leaves the rest of RESULTS.md as it is
	rivals -only '^outbox' -results .
	;;
short) ## the same for what has a target, in two minutes: a line of JSON each
	rivals -short
	;;
go) ## the Go benchmarks of the stores
	sh scripts/servers.sh
	out=$(mktemp "${TMPDIR:-/tmp}/tickslot-bench.XXXXXX")
	trap 'rm -f "$out" "$out.code"' EXIT
	stores -benchmem ./dlock/redislock
	stores -benchtime 1x ./dlock/sqllock
	stores -benchtime 200x ./proof/registrycost
	;;
*)
	[ -z "${1:-}" ] || echo "bench: there is no $1" >&2
	echo 'make bench WHAT=' >&2
	awk -F '\\) ## ' '/^[a-z][a-z-]*\) ## / { printf "  %-10s  %s\n", $1, $2 }' scripts/bench.sh >&2
	exit 2
	;;
esac
