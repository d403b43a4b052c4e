#!/bin/sh
# Prints the longest Go files and the types with the most methods, not counting tests.
set -eu
files=$(git ls-files '*.go' | grep -v '_test\.go$')
echo "lines  file"
# shellcheck disable=SC2086 # a list
wc -l $files | grep -v ' total$' | sort -rn | head -n 15
echo
echo "methods  type"
# shellcheck disable=SC2086 # a list
grep -Eo '^func \([a-zA-Z_]* ?\*?[A-Za-z0-9]+' $files |
	sed -E 's,/[^/]*:func \([a-zA-Z_]* ?\*?, ,; s,^[^ /]*\.go:func \([a-zA-Z_]* ?\*?,. ,' |
	sort | uniq -c | sort -rn | head -n 15
