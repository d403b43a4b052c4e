#!/bin/sh
# usage: scripts/proof.sh WHAT
#
# Runs one of the proofs that attack the promises. Without an argument, lists them. proof/README.md
# says what each has found. FOR, SEED and similar settings are environment variables, which make
# sets, too.
set -eu
cd -- "$(dirname -- "$0")/.."

# tests runs tests, including the long proofs, and prints their whole output.
tests() {
	TICKSLOT_LONG=1 VERBOSE=1 sh scripts/test.sh -count=1 "$@"
}

case ${1:-} in
model) ## spin checks the lease protocol in every order of its steps, and refutes its mutants: a minute
	sh scripts/servers.sh
	sh scripts/model.sh
	;;
simulate) ## 50 hosts for 30 days of virtual time, with faults, 20 times: half an hour (SEED=n: from that seed on)
	VERBOSE=1 sh scripts/test.sh -count=1 -timeout 120m -run '^TestSimulate$' ./proof/simulate -ttl 1m -hosts 50 -days 30 -seeds 20 -seed "${SEED:-1}"
	;;
scale) ## 1,000 hosts with 1,000 timers each in virtual time, their calls beside the formula of COSTS.md: a minute, 5 GB (SCALE=100x100)
	VERBOSE=1 sh scripts/test.sh -count=1 -timeout 20m -run '^TestScale$' ./proof/simulate -scale "${SCALE:-1000x1000}"
	;;
conformance) ## the suites of locks, registries, durable runs and outboxes on every store, in their long forms: half an hour, an estimate
	sh scripts/servers.sh
	# shellcheck disable=SC2046 # packages have no spaces
	tests -p 1 -timeout 40m -run '^Test(Conformance|Contention)' $(sh scripts/suites.sh)
	;;
torture) ## processes, networks and servers fail under timers on all stores: half an hour (FOR=5m, SEED=n)
	sh scripts/servers.sh
	go run -tags sqlite ./proof/torture/fleet -store redis,sentinel,cluster,postgres,sqlite -for "${FOR:-30m}" ${SEED:+-seed "$SEED"}
	;;
torture-short) ## the same on Redis alone: three quarters of a minute (FOR, SEED)
	sh scripts/servers.sh
	go run ./proof/torture/fleet -store redis -for "${FOR:-42s}" ${SEED:+-seed "$SEED"}
	;;
torture-mixed) ## every second host runs an earlier commit: six minutes (OTHER=commit, FOR, SEED)
	sh scripts/servers.sh
	sh scripts/torture-mixed.sh ${OTHER:+"$OTHER"}
	;;
rate) ## the same for limits with a rate: 5 hosts, on Redis, Postgres, MariaDB and SQLite: nine minutes (FOR=2m each, SEED)
	sh scripts/servers.sh
	for store in redis postgres mariadb sqlite; do
		go run -tags sqlite ./proof/torture/fleet -store "$store" -hosts 5 -rates -for "${FOR:-2m}" ${SEED:+-seed "$SEED"}
	done
	;;
torture-durable) ## the same under durable runs, on Postgres, behind PgBouncer, on SQLite: twelve minutes (FOR, SEED)
	sh scripts/servers.sh
	go run -tags sqlite ./proof/torture/durable -store postgres,pgbouncer,sqlite -for "${FOR:-12m}" ${SEED:+-seed "$SEED"}
	;;
torture-outbox) ## the same under outboxes, on these three and MariaDB: fourteen minutes (FOR, SEED)
	sh scripts/servers.sh
	go run -tags sqlite ./proof/torture/outbox -store postgres,pgbouncer,mariadb,sqlite -for "${FOR:-12m}" ${SEED:+-seed "$SEED"}
	;;
crash) ## an outbox is killed before and after each statement, on SQLite, Postgres, MariaDB: two minutes
	sh scripts/servers.sh
	tests -timeout 40m ./proof/crash
	;;
acceptance) ## three processes are asked who holds what while one is killed, stopped or cut off: three minutes
	sh scripts/servers.sh
	tests -timeout 40m ./proof/acceptance
	;;
registrycost) ## what the registry costs the locks of its host: two minutes
	sh scripts/servers.sh
	tests -timeout 40m ./proof/registrycost
	;;
mutants) ## plant bugs, one at a time, and see each found by the layer that is meant to: half an hour
	sh scripts/servers.sh
	go run ./proof/mutants
	;;
protections) ## print which test shows each protection in each store and product, and run them: 24 minutes
	sh scripts/servers.sh
	go run ./proof/protections
	;;
matrix) ## the suites of all stores on every server that the documents name, some of them fetched: 22 minutes (ONLY='Redis|MySQL 9')
	sh scripts/servers.sh
	go run ./proof/matrix ${ONLY:+-only "$ONLY"}
	;;
clocks) ## five hosts whose clocks differ, a thousand ticks of a second on Redis and Postgres: 19 minutes on a quiet machine
	sh scripts/servers.sh
	VERBOSE=1 sh scripts/test.sh -count=1 -timeout 40m -run '^TestClocksThatDifferOnServers$' ./timer -clocks 1000
	;;
calendars) ## cron, daily times and blackouts beside clocks on the wall, ten years minute by minute: half a minute
	tests -run '^(TestCron|TestDaily|TestBlackouts)' ./schedule
	;;
cluster) ## 10,000 leases on a Redis Cluster, of which a node hangs for half a minute: none is lost on the others: a minute
	sh scripts/servers.sh
	tests -run '^TestHungNodeCostsOnlyItsOwnLeases$' ./dlock/redislock
	;;
sentinel) ## three processes of examples/sentinel, whose master stands still for 20 seconds: a minute and a half
	sh scripts/servers.sh
	tests -run '^TestMasterStandsStill$' ./examples/sentinel
	;;
tools) ## the tests of the tools in proof/: a minute
	sh scripts/servers.sh
	sh scripts/test.sh -count=1 -p 2 -timeout 20m ./proof/...
	;;
long) ## the long proofs, which make test leaves out, and timer and the suites of stores under -race: 45 minutes
	sh scripts/servers.sh browser
	sh scripts/test-long.sh
	;;
short) ## the short tests of the core, 20 times under -race: half an hour
	go test -race -gcflags=modernc.org/...=-race=false -short -count=20 -timeout 60m ./dlock/... ./timer/... ./health/...
	;;
*)
	[ -z "${1:-}" ] || echo "proof: there is no $1" >&2
	echo 'make proof WHAT=' >&2
	awk -F '\\) ## ' '/^[a-z][a-z-]*\) ## / { printf "  %-15s  %s\n", $1, $2 }' scripts/proof.sh >&2
	exit 2
	;;
esac
