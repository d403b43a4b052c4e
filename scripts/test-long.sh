#!/bin/sh
# usage: scripts/test-long.sh [list]
#
# Runs the long proofs, or lists them: the tests that call testkit.Long or testkit.Rounds. Of the
# packages that make test runs without the race detector (unraced.sh stores) it runs all tests.
set -eu
cd -- "$(dirname -- "$0")/.."

# The folder and the name of each test.
found=$(find . -name '*_test.go' -not -path './benchmarks/*' -not -path './cluster/page/browsertest/*' -exec awk '
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
export TICKSLOT_LONG=1
code=0
# Those of stores run one after the other: their servers keep both cores busy.
stores=$(sh scripts/unraced.sh stores $(go list ./...) | grep -v -E '/internal/acceptance$|/outbox/internal/crash$')
# shellcheck disable=SC2086 # the folders have no spaces
sh scripts/test.sh -race -count=1 -p 1 -timeout 40m ./dlock/sqllock $stores || code=1
# It starts hundreds of processes, and the race detector makes each start several times slower.
sh scripts/test.sh -count=1 -timeout 20m ./outbox/internal/crash || code=1
# It measures how soon hosts agree, so it runs alone, and without what makes each process slower.
sh scripts/test.sh -count=1 -timeout 20m ./internal/acceptance || code=1
# A torture has a dozen processes, which the race detector makes slower, too.
sh scripts/test.sh -count=1 -p 1 -timeout 20m -run '^TestTorture' ./internal/torture/durable ./internal/torture/outbox ||
	code=1
# The others run side by side, because most of a proof is waiting.
rest=$(echo "$found" | while read -r folder name; do
	sh scripts/unraced.sh stores "$folder" >/dev/null || case $folder in
	./internal/torture/durable | ./internal/torture/outbox) ;;
	*) echo "$folder $name" ;;
	esac
done)
names=$(echo "$rest" | cut -d' ' -f2 | sort -u | paste -s -d'|' -)
# shellcheck disable=SC2046
sh scripts/test.sh -race -count=1 -p 2 -timeout 20m -run "^($names)\$" $(echo "$rest" | cut -d' ' -f1 | sort -u) ||
	code=1
# A module of its own, all of whose tests are long.
(cd cluster/page/browsertest && sh ../../../scripts/test.sh -race -count=1 -timeout 20m ./...) || code=1
exit $code
