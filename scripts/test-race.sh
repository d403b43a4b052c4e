#!/bin/sh
# usage: scripts/test-race.sh
#
# Runs under the race detector what shares memory: the core, the modules, and the suite that each
# store has to pass. All tests of stores and examples run so with make race: they wait for real
# servers or programs, and share little memory. make test leaves the detector out: it makes a test
# several times slower, and has everything compiled a second time.
set -u
cd -- "$(dirname -- "$0")/.." || exit
code=0

# What takes longest begins first, or it would go on alone at the end.
# shellcheck disable=SC2046 # packages have no spaces
sh scripts/test.sh -race -count=1 -p 3 -timeout 20m ./timer ./outbox ./durable $(sh scripts/unraced.sh raced $(go list ./...)) || code=1
for module in cmd/tickslot contrib/river oteltickslot health/grpchealth contrib/watermill dlock/caslock/azurelock dlock/caslock/dynamolock dlock/caslock/etcdlock; do
	(root=$PWD && cd "$module" && sh "$root/scripts/test.sh" -race -count=1 -timeout 20m ./...) || code=1
done
# Without that of sqllock, which takes as long as all others together: the tests of outbox, which take
# its locks, run above.
suites=$(sh scripts/unraced.sh stores $(sh scripts/suites.sh) | grep -v '/sqllock$')
# shellcheck disable=SC2086
sh scripts/test.sh -race -count=1 -p 3 -timeout 20m -run '^TestConformance' $suites || code=1
exit $code
