#!/bin/sh
# Runs every fuzz target for FOR (default 30s), one after the other. Continues after a failure and
# fails at the end.
set -u
export LC_ALL=C

found=$(find . -name '*_test.go' -exec grep -H '^func Fuzz[A-Za-z0-9_]*(' {} + |
	sed 's|^\(.*\)/[^/]*_test\.go:func \(Fuzz[A-Za-z0-9_]*\)(.*|\1 \2|' | sort -u)
if [ -z "$found" ]; then
	echo "fuzz: found no fuzz target: was the pattern in this script, or a folder, renamed?" >&2
	exit 1
fi

# shellcheck disable=SC2086 # pairs of words: folder, target
set -- $found
failed=
while [ $# -ge 2 ]; do
	echo "== $1 $2"
	go test -run '^$' -fuzz "^$2\$" -fuzztime "${FOR:-30s}" "$1" || failed="$failed $1:$2"
	shift 2
done
if [ -n "$failed" ]; then
	echo "fuzz: failed:$failed"
	exit 1
fi
