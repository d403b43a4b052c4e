#!/bin/sh
# usage: scripts/test.sh [argument of go test]...
#
# Runs go test and then lists, last, the tests that skipped for want of
# something (they write a line each into the file named by TICKSLOT_SKIPS).
# The exit code is that of go test.
set -u

skips=$(mktemp "${TMPDIR:-/tmp}/tickslot-skips.XXXXXX") || exit 1
trap 'rm -f "$skips"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The race detector needs a C compiler. Without one the tests are worth running all the same, but not in CI.
norace=
if ! command -v "$(go env CC)" >/dev/null 2>&1 && [ "${TICKSLOT_REQUIRE_SERVERS:-}" != 1 ]; then
	norace="the race detector (-race): it needs a C compiler, and there is no $(go env CC)"
	for arg; do
		shift
		[ "$arg" = -race ] || set -- "$@" "$arg"
	done
fi

# SQLite is C that was translated to Go: the race detector makes it twenty times
# slower, and has nothing to find in it.
TICKSLOT_SKIPS=$skips go test -gcflags=modernc.org/...=-race=false "$@"
code=$?
[ -z "$norace" ] || echo "$norace" >>"$skips"

if [ -s "$skips" ]; then
	echo
	echo "skipped:"
	sort -u "$skips" | sed 's/^/  /'
fi
exit "$code"
