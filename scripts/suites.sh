#!/bin/sh
# usage: scripts/suites.sh
#
# Prints the packages of the root module that have a conformance suite (TestConformance…). Other
# modules run their suites with their other tests.
set -eu
cd -- "$(dirname -- "$0")/.."
go list -f '{{.Dir}} {{.ImportPath}}' ./... | while read -r folder path; do
	! grep -qs '^func TestConformance' "$folder"/*_test.go || echo "$path"
done
