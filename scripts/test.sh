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

TICKSLOT_SKIPS=$skips go test "$@"
code=$?

if [ -s "$skips" ]; then
	echo
	echo "skipped:"
	sort -u "$skips" | sed 's/^/  /'
fi
exit "$code"
