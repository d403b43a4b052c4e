# Plain POSIX make; `make` alone prints the help.
# Longer recipes live in scripts/, so that .ci/run and make share them.

.PHONY: help test test-long race short bench bench-durable bench-outbox bench-short bench-go fuzz calendars clocks sentinel torture-short torture torture-mixed torture-durable torture-outbox cluster-proof model matrix protections mutants simulate scale secrets sizes quickstart lint examples ci

help: ## print this list
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile

test: ## run every test but the long proofs, many under -race; what was skipped is listed last
	@sh scripts/servers.sh
	@sh scripts/test-all.sh

test-long: ## run the long proofs, which make test leaves out, and timer and the suites of all stores under -race: 45 minutes
	@sh scripts/servers.sh browser
	@sh scripts/test-long.sh

race: ## run all tests of the stores under -race, one after the other: half an hour
	@sh scripts/servers.sh
	@sh scripts/test.sh -race -count=1 -p 1 -timeout 40m $$(sh scripts/unraced.sh stores $$(go list ./...))

short: ## run the short tests of the core 20 times under -race
	go test -race -gcflags=modernc.org/...=-race=false -short -count=20 -timeout 60m ./dlock/... ./timer/... ./health/...

bench: ## measure tickslot beside every rival: an hour, writes proof/benchmarks/RESULTS.md and its plots
	@sh scripts/servers.sh
	cd proof/benchmarks && go run . -results .

bench-durable: ## the part of it about durable runs: 35 minutes, leaves the rest of RESULTS.md as it is
	@sh scripts/servers.sh
	cd proof/benchmarks && go run . -only '^durable' -results .

bench-outbox: ## the part of it about the outbox: 15 minutes, leaves the rest of RESULTS.md as it is
	@sh scripts/servers.sh
	cd proof/benchmarks && go run . -only '^outbox' -results .

bench-short: ## the same for what has a target, in two minutes: a line of JSON each
	@sh scripts/servers.sh >&2
	@cd proof/benchmarks && go run . -short

bench-go: ## run the Go benchmarks of the stores
	@sh scripts/servers.sh
	@sh scripts/bench-go.sh

fuzz: ## run each fuzz target for 30s (FUZZTIME=5m for longer)
	@sh scripts/fuzz.sh

calendars: ## compare cron, daily times and blackouts with clocks on the wall, minute by minute for ten years
	@TICKSLOT_LONG=1 VERBOSE=1 sh scripts/test.sh -count=1 -run '^(TestCron|TestDaily|TestBlackouts)' ./schedule

clocks: ## five hosts whose clocks differ, a thousand ticks of a second on Redis and Postgres: 19 minutes on a quiet machine
	@sh scripts/servers.sh
	@VERBOSE=1 sh scripts/test.sh -count=1 -timeout 40m -run '^TestClocksThatDifferOnServers$$' ./timer -clocks 1000

sentinel: ## three processes of examples/sentinel, whose master stands still for 20 seconds: a minute and a half
	@sh scripts/servers.sh
	@TICKSLOT_LONG=1 VERBOSE=1 sh scripts/test.sh -count=1 -run '^TestMasterStandsStill$$' ./examples/sentinel

torture-short: ## torture timers on a real Redis for three quarters of a minute
	go run ./proof/torture/fleet -store redis -for 42s $${SEED:+-seed $$SEED}

torture: ## torture timers on all stores, half an hour together (TORTURE=5m for less)
	@sh scripts/servers.sh
	go run -tags sqlite ./proof/torture/fleet -store redis,sentinel,cluster,postgres,sqlite -for $${TORTURE:-30m} $${SEED:+-seed $$SEED}

torture-mixed: ## torture a fleet of which every second host runs an earlier commit: six minutes (OTHER=commit)
	@sh scripts/servers.sh
	@sh scripts/torture-mixed.sh $${OTHER:-}

torture-durable: ## torture durable runs on Postgres, behind PgBouncer, and on SQLite: twelve minutes (DURABLE=3m for less)
	@sh scripts/servers.sh
	go run -tags sqlite ./proof/torture/durable -store postgres,pgbouncer,sqlite -for $${DURABLE:-12m} $${SEED:+-seed $$SEED}

torture-outbox: ## torture outboxes on Postgres, behind PgBouncer, on MariaDB and SQLite: fourteen minutes (OUTBOX=4m for less)
	@sh scripts/servers.sh
	go run -tags sqlite ./proof/torture/outbox -store postgres,pgbouncer,mariadb,sqlite -for $${OUTBOX:-12m} $${SEED:+-seed $$SEED}

cluster-proof: ## 10,000 leases of one process on a Redis Cluster, of which a node hangs for half a minute: none is lost on the others
	@sh scripts/servers.sh
	@TICKSLOT_LONG=1 VERBOSE=1 sh scripts/test.sh -count=1 -run '^TestHungNodeCostsOnlyItsOwnLeases$$' ./dlock/redislock

model: ## have spin check the model of the lease protocol, and refute its mutants
	@sh scripts/servers.sh
	@sh scripts/model.sh

matrix: ## run the suites of all stores on every server that the documents name, some of them fetched
	@sh scripts/servers.sh
	@go run ./proof/matrix

protections: ## print which test shows each protection in each store and product, and run them
	@sh scripts/servers.sh
	go run ./proof/protections

mutants: ## plant bugs, one at a time, and see each found by the layer that is meant to
	@sh scripts/servers.sh
	go run ./proof/mutants

scale: ## 1,000 hosts with 1,000 timers each in virtual time, their calls beside docs/scale.md: a minute, 5 GB (SCALE=100x100)
	@VERBOSE=1 sh scripts/test.sh -count=1 -timeout 20m -run '^TestScale$$' ./proof/simulate -scale $${SCALE:-1000x1000}

simulate: ## 50 hosts for 30 days of virtual time, 20 times, with faults (SEED=n: from that seed on)
	@VERBOSE=1 sh scripts/test.sh -count=1 -timeout 120m -run '^TestSimulate$$' ./proof/simulate -ttl 1m -hosts 50 -days 30 -seeds 20 -seed $${SEED:-1}

secrets: ## look for the test servers' password in all that the short tests print (make test does so, too)
	@sh scripts/servers.sh
	@sh scripts/test.sh -count=1 -short -p 1 -timeout 20m ./...

sizes: ## print the longest files and the types with the most methods: no rule, but a reason to look
	@sh scripts/sizes.sh

quickstart: ## run the quickstart example
	go run ./examples/quickstart

lint: ## gofmt, go vet, staticcheck, misspell, go mod tidy -diff, govulncheck
	@sh scripts/lint.sh

examples: ## run the quickstart, and build every example, those of the module examples/migrate, too (make test runs the others' tests)
	go run ./examples/quickstart -json
	cd examples/migrate && go test ./...
	go build -o /dev/null ./examples/...

ci: ## run what CI runs
	@bash .ci/run
