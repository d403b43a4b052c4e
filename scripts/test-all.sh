#!/bin/sh
# usage: scripts/test-all.sh
#
# Runs the tests of the core and the command line but the long proofs, without the race detector:
# with it everything is compiled a second time, and a test takes several times as long.
# scripts/test-race.sh is for that, and for the adapters to other projects (gRPC, OpenTelemetry,
# River, Watermill); scripts/test-long.sh for deploy/ and the benchmarks. The libraries of these
# modules take longer to compile than their tests to run. make examples runs the tests of examples/,
# and make proof WHAT=tools those of the tools in proof/.
set -u
cd -- "$(dirname -- "$0")/.." || exit

# What waits longest begins first, or it would go on alone at the end.
first='./timer ./outbox/internal/sqlstore ./dlock/redislock ./dlock/nativelock ./outbox
	./durable/internal/postgres ./cluster/sqlregistry ./durable ./cluster/page'

dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
# A job in the background ignores an interrupt, so it is ended with all that belongs to make test.
trap 'trap "" TERM; kill 0; exit 130' INT
trap 'trap "" TERM; kill 0; exit 143' TERM
chmod 755 "$dir" # some servers refuse root, and are started as another user
mkdir "$dir/templates" || exit 1
export TICKSLOT_TEMPLATES="$dir/templates"

# Go commands that run at once would each compile what all of them need.
# shellcheck disable=SC2046
go build -trimpath $(go list -f '{{if ne .Name "main"}}{{.ImportPath}}{{end}}' ./...) || exit 1

# Much of it is waiting, so more runs at once than there are processors: the command line, which is a
# module of its own, and, beside the other packages, the one whose tests wait most.
(cd cmd/tickslot && sh ../../scripts/test.sh -count=1 -timeout 20m ./...) >"$dir/commands" 2>&1 &
commands=$!
sh scripts/test.sh -count=1 -parallel 16 -timeout 20m ./dlock/sqllock >"$dir/sqllock" 2>&1 &
sqllock=$!
# shellcheck disable=SC2046,SC2086
sh scripts/test.sh -count=1 -p 4 -timeout 20m $first $(go list ./... | grep -v -E '/dlock/sqllock$|/examples/|/proof/')
code=$?
wait $commands || code=1
wait $sqllock || code=1
cat "$dir/commands" "$dir/sqllock"
exit $code
