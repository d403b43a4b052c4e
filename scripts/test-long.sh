#!/bin/sh
# usage: scripts/test-long.sh [list]
#
# Runs the long proofs, or lists them: the tests that call testkit.Long or testkit.Rounds.
set -eu
cd -- "$(dirname -- "$0")/.."

# The folder and the name of each test.
found=$(find . -name '*_test.go' -not -path './benchmarks/*' -exec awk '
	FNR == 1 { name = "" }
	/^func / { name = "" }
	/^func Test[A-Z]/ { name = $2; sub(/\(.*/, "", name) }
	/(^|[^A-Za-z.])(testkit\.)?(Long|Rounds)\(/ && name != "" && (/testkit\./ || FILENAME ~ /internal\/testkit\//) {
		folder = FILENAME; sub(/\/[^\/]*$/, "", folder); print folder, name
	}
' {} + | sort -u)
[ -n "$found" ] || { echo 'test-long: no test calls testkit.Long or testkit.Rounds' >&2; exit 1; }
if [ "${1:-}" = list ]; then
	echo "$found"
	exit
fi
names=$(echo "$found" | cut -d' ' -f2 | sort -u | paste -s -d'|' -)
export TICKSLOT_LONG=1
# shellcheck disable=SC2046 # the folders have no spaces
exec sh scripts/test.sh -race -count=1 -p 1 -timeout 20m -run "^($names)\$" $(echo "$found" | cut -d' ' -f1 | sort -u)
