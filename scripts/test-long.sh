#!/bin/sh
# usage: scripts/test-long.sh [list]
#
# Runs the long proofs, or lists them: the tests that call testkit.Long or testkit.Rounds. The race
# detector is left out where servers or processes keep both cores busy.
set -eu
cd -- "$(dirname -- "$0")/.."

# The folder and the name of each test.
found=$(find . -name '*_test.go' -not -path './proof/benchmarks/*' -not -path './cluster/page/browsertest/*' -exec awk '
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

# of GROUP: the folders and names of the tests of slow, stores or others.
of() {
	echo "$found" | while read -r folder name; do
		group=others
		case $folder in
		./proof/acceptance | ./proof/torture/* | ./proof/crash) group=slow ;;
		*) ! sh scripts/unraced.sh stores "$folder" >/dev/null || group=stores ;;
		esac
		[ $group != "$1" ] || echo "$folder $name"
	done
}

# run GROUP ARGUMENT...: runs these tests, with arguments of go test.
run() {
	tests=$(of "$1")
	shift
	names=$(echo "$tests" | cut -d' ' -f2 | sort -u | paste -s -d'|' -)
	# shellcheck disable=SC2046 # the folders have no spaces
	sh scripts/test.sh -count=1 -timeout 30m "$@" -run "^($names)\$" $(echo "$tests" | cut -d' ' -f1 | sort -u) || code=1
}

# Servers keep both cores busy, so the packages of stores run one after the other. Most of their tests
# wait for leases to end.
run stores -p 1 -parallel 16
# They start processes by the dozen, and measure how soon hosts agree.
run slow -p 1
# Most of these is waiting.
run others -race -p 3
# Modules of their own: all tests of the first are long, the others need large libraries.
(cd cluster/page/browsertest && sh ../../../scripts/test.sh -race -count=1 -timeout 20m ./...) || code=1
(cd proof/benchmarks && sh ../../scripts/test.sh -count=1 -timeout 20m ./...) || code=1
(cd internal/deploytest && sh ../../scripts/test.sh -count=1 -timeout 20m ./...) || code=1
exit $code
