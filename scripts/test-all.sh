#!/bin/sh
# usage: scripts/test-all.sh
#
# Runs the tests of the core and the command line but the long proofs, without the race detector:
# with it everything is compiled a second time, and a test takes several times as long.
# scripts/test-race.sh is for that, and for the adapters to other projects (gRPC, OpenTelemetry,
# River, Watermill); scripts/test-long.sh for deploy/ and the benchmarks. The libraries of these
# modules take longer to compile than their tests to run.
set -u
cd -- "$(dirname -- "$0")/.." || exit

# What waits longest begins first, or it would go on alone at the end.
first='./dlock/sqllock ./timer ./outbox/internal/sqlstore ./dlock/redislock ./dlock/nativelock ./outbox ./proof/registrycost
	./durable/internal/postgres ./cluster/sqlregistry ./proof/simulate ./durable ./cluster'

dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
# A job in the background ignores an interrupt, so it is ended with all that belongs to make test.
trap 'trap "" TERM; kill 0; exit 130' INT
trap 'trap "" TERM; kill 0; exit 143' TERM
chmod 755 "$dir" # some servers refuse root, and are started as another user
mkdir "$dir/templates" || exit 1
export TICKSLOT_TEMPLATES="$dir/templates"

(cd cmd/tickslot && sh ../../scripts/test.sh -count=1 -timeout 20m ./...) >"$dir/printed" 2>&1 &

# Much of it is waiting, so more packages run at once than there are processors.
# shellcheck disable=SC2086
sh scripts/test.sh -count=1 -p 3 -timeout 20m $first ./...
code=$?
wait $! || code=1
echo 'cmd/tickslot, a module of its own:'
cat "$dir/printed"
exit $code
