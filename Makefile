# Plain POSIX make; `make` alone prints the help.
# Recipes live in scripts/, so that .ci/run and make share them.

.PHONY: help test lint race proof fuzz bench quickstart examples ci

help: ## print this list
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  make %-10s  %s\n", $$1, $$2 }' Makefile

test: ## run every test but the long proofs; what was skipped is listed last
	@sh scripts/servers.sh
	@sh scripts/test-all.sh

lint: ## golangci-lint (gofmt, vet, staticcheck, misspell), go mod tidy -diff and govulncheck, in all modules
	@sh scripts/lint.sh

race: ## run the core, the modules and all tests of the stores under -race: half an hour for the stores alone
	@sh scripts/servers.sh
	@sh scripts/test-race.sh
	@sh scripts/test.sh -race -count=1 -p 1 -timeout 40m $$(sh scripts/unraced.sh stores $$(go list ./...))

proof: ## attack what is promised, WHAT=torture for example; alone it lists the ways (proof/README.md)
	@sh scripts/proof.sh "$(WHAT)"

fuzz: ## run each fuzz target for half a minute (FOR=5m for longer)
	@sh scripts/fuzz.sh

bench: ## measure tickslot beside every rival, WHAT=short for example; alone it lists the ways
	@sh scripts/bench.sh "$(WHAT)"

quickstart: ## run the quickstart example
	go run ./examples/quickstart

examples: ## run the tests of every example, those of the module examples/migrate, too
	@sh scripts/servers.sh
	@sh scripts/test.sh -count=1 -p 2 -timeout 20m ./examples/...
	cd examples/migrate && go test ./...

ci: ## run what CI runs
	@bash .ci/run
