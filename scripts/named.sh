#!/bin/sh
# usage: scripts/named.sh PACKAGE 'NAME...' [argument of go test]...
#
# Runs the tests of a package whose names begin with one of these words. go test passes when it runs no test at all, so a
# word that begins no test, as after a renaming, fails here.
set -eu

package=$1
names=$2
shift 2

all=$(go test -list . "$package")
pattern=
for name in $names; do
	if ! printf '%s\n' "$all" | grep -q "^$name"; then
		echo "named: no test in $package begins with $name" >&2
		exit 1
	fi
	pattern=$pattern${pattern:+|}$name
done
exec go test -run "^($pattern)" "$@" "$package"
