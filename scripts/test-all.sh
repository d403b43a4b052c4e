#!/bin/sh
# usage: scripts/test-all.sh
#
# Runs every test but the long proofs: most under the race detector, beside them what does one
# thing at a time, because much of both is waiting; then the stores, one after the other and without
# the race detector. Their servers keep both cores busy: side by side, leases of a second were lost
# on a slow machine.
set -u
cd -- "$(dirname -- "$0")/.." || exit

# shellcheck disable=SC2046 # packages have no spaces
all=$(go list ./... | paste -s -d' ' -)
stores=$(sh scripts/unraced.sh stores $all)
others=$(sh scripts/unraced.sh others $all)
raced=$(sh scripts/unraced.sh raced $all)

beside() {
	code=0
	echo 'allocations and bytes, without the race detector, which makes some of its own:'
	sh scripts/test.sh -count=1 -run 'Alloc|CostsNothing|AreSmall' ./dlock ./timer || code=1
	echo 'what does one thing at a time:'
	# shellcheck disable=SC2086
	sh scripts/test.sh -count=1 -p 1 -timeout 20m $others || code=1
	(cd health/grpchealth && sh ../../scripts/test.sh -race -count=1 ./...) || code=1
	(cd contrib/river && sh ../../scripts/test.sh -race -count=1 ./...) || code=1
	(cd contrib/watermill && sh ../../scripts/test.sh -race -count=1 ./...) || code=1
	(cd cmd/tickslot && sh ../../scripts/test.sh -race -count=1 ./...) || code=1
	(cd oteltickslot && sh ../scripts/test.sh -race -count=1 ./...) || code=1
	(cd proof/benchmarks && sh ../../scripts/test.sh -count=1 ./...) || code=1
	(cd internal/deploytest && sh ../../scripts/test.sh -count=1 ./...) || code=1
	return $code
}

printed=$(mktemp) || exit 1
trap 'rm -f "$printed"' EXIT
# A job in the background ignores an interrupt, so it is ended with all that belongs to make test.
trap 'trap "" TERM; kill 0; exit 130' INT
trap 'trap "" TERM; kill 0; exit 143' TERM
beside >"$printed" 2>&1 &

echo 'the core under the race detector:'
# shellcheck disable=SC2086
sh scripts/test.sh -race -count=1 -p 2 -timeout 20m $raced
code=$?
wait $! || code=1
cat "$printed"
echo 'stores, without the race detector: make race runs them with it:'
# shellcheck disable=SC2086
sh scripts/test.sh -count=1 -p 1 -timeout 20m ./dlock/sqllock $stores || code=1
exit $code
