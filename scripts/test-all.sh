#!/bin/sh
# usage: scripts/test-all.sh
#
# Runs every test but the long proofs: most of them under the race detector, and the others beside
# these, because much of both is waiting. What the others print follows at the end.
set -u
cd -- "$(dirname -- "$0")/.." || exit

# The race detector makes these several times slower, and has little to find in them.
unraced='/tickslot$|/schedule$|/examples/'

beside() {
	code=0
	echo 'allocations and bytes, without the race detector, which makes some of its own:'
	sh scripts/test.sh -count=1 -run 'Alloc|CostsNothing|AreSmall' ./dlock ./dlock/redislock ./timer || code=1
	echo 'what does one thing at a time, and the examples, which make examples runs with it:'
	# shellcheck disable=SC2046 # packages have no spaces
	sh scripts/test.sh -count=1 -p 1 -timeout 20m $(go list ./... | grep -E "$unraced") || code=1
	(cd health/grpchealth && sh ../../scripts/test.sh -race -count=1 ./...) || code=1
	(cd oteltickslot && sh ../scripts/test.sh -race -count=1 ./...) || code=1
	return $code
}

printed=$(mktemp) || exit 1
trap 'rm -f "$printed"' EXIT
# A job in the background ignores an interrupt, so it is ended with all that belongs to make test.
trap 'trap "" TERM; kill 0; exit 130' INT
trap 'trap "" TERM; kill 0; exit 143' TERM
beside >"$printed" 2>&1 &

echo 'everything else under the race detector, the longest first:'
# shellcheck disable=SC2046
sh scripts/test.sh -race -count=1 -p 2 -timeout 20m ./timer ./dlock/sqllock $(go list ./... | grep -v -E "$unraced")
code=$?
wait $! || code=1
cat "$printed"
exit $code
