#!/bin/sh
# usage: scripts/secrets.sh [argument of go test]...
#
# Runs the tests with all that they print, passed or not, and fails if the password that every server of theirs
# asks for (servertest.Canary) is in it, or if they have not run. Default: the short tests of every package.
set -u

canary=$(sed -n 's/^const Canary = "\(.*\)"$/\1/p' internal/servertest/canary.go)
[ -n "$canary" ] || { echo "secrets: internal/servertest/canary.go has no password"; exit 1; }
out=$(mktemp "${TMPDIR:-/tmp}/tickslot-secrets.XXXXXX") || exit 1
trap 'rm -f "$out"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

[ $# -gt 0 ] || set -- -short -p 1 -timeout 20m ./...
go test -v -count=1 -gcflags=modernc.org/...=-race=false "$@" >"$out" 2>&1
code=$?
hits=$(grep -a -c -F "$canary" "$out")
tests=$(grep -a -c '^ *--- PASS' "$out")
if [ "$hits" -ne 0 ]; then
	grep -a -n -F "$canary" "$out" | cut -c 1-300 | head -n 20
fi
if [ "$code" -ne 0 ]; then
	grep -a -E '^ *--- FAIL|^FAIL|^panic' "$out" | head -n 20
fi
lines=$(wc -l <"$out")
printf '{"tests":%d,"lines":%d,"canary_hits":%d,"failed":%s}\n' "$tests" "$lines" "$hits" "$([ "$code" -eq 0 ] && echo false || echo true)"
[ "$hits" -eq 0 ] && [ "$code" -eq 0 ] && [ "$tests" -gt 0 ]
