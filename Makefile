# Plain POSIX make; `make` alone prints the help.
# Longer recipes live in scripts/, so that .ci/run and make share them.

.PHONY: help test short bench fuzz torture-core model simulate quickstart lint examples ci

help: ## print this list
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

test: ## run every test under -race; what was skipped is listed last
	@sh scripts/servers.sh
	@sh scripts/test.sh -race -count=1 -p 1 -timeout 20m ./...

short: ## run the short tests of the core 20 times under -race
	go test -race -gcflags=modernc.org/...=-race=false -short -count=20 ./dlock/... ./timer/... ./health/...

bench: ## run the benchmarks of the stores
	@sh scripts/servers.sh
	go test -run '^$$' -bench . -benchmem ./dlock/redislock/
	go test -run '^$$' -bench . -benchtime 1x ./dlock/sqllock/

fuzz: ## run each fuzz target for 30s (FUZZTIME=5m for longer)
	@sh scripts/fuzz.sh

torture-core: ## torture the core for 60s
	go run ./internal/torture/core -for 60s

model: ## have spin check the model of the lease protocol, and refute its mutants
	@sh scripts/servers.sh
	@sh scripts/model.sh

simulate: ## 50 hosts for 30 days of virtual time, 20 times, with faults (SEED=n: from that seed on)
	go test -c -o bin/simulate.test ./internal/simulate
	bin/simulate.test -test.run '^TestSimulate$$' -test.timeout 60m -test.v -hosts 50 -days 30 -seeds 20 -seed $${SEED:-1}

quickstart: ## run the quickstart example
	go run ./examples/quickstart

lint: ## gofmt, go vet, staticcheck, go mod tidy -diff, govulncheck
	@sh scripts/lint.sh

examples: ## run, test and build every example
	go run ./examples/quickstart -json
	go test ./examples/...
	go build -o /dev/null ./examples/...

ci: ## run what CI runs
	@bash .ci/run
