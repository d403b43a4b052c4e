#!/bin/sh
# usage: scripts/lint.sh [golangci|misspell|tidy|govulncheck]...
#
# Runs the named checks, or all of them, and fails if one of them does. The versions of the tools
# are pinned in internal/tools, so that they are no dependency of the module itself. Which linters
# there are, and why: .golangci.yml.
set -u

# tool runs a tool of internal/tools, or of the folder in it that is set before.
tools=$PWD/internal/tools
tool() {
	GOWORK=off go tool -modfile="$tools/go.mod" "$@"
}

# each runs a command in every module, or in those that are set before it.
modules='. cluster/page/browsertest cmd/tickslot contrib/river contrib/watermill dlock/caslock/azurelock dlock/caslock/etcdlock examples/migrate health/grpchealth internal/deploytest oteltickslot proof/benchmarks'
each() {
	bad=0
	for module in $modules; do
		(cd "$module" && "$@") || bad=1
	done
	return "$bad"
}

# To compile golangci-lint takes minutes, once.
check_golangci() (
	tools=$tools/golangci
	each tool golangci-lint run ./...
)

# golangci-lint looks into Go files only.
check_misspell() {
	git ls-files '*.md' '*.lua' '*.sql' '*.sh' '*.yml' '*.pml' Makefile | tr '\n' '\0' | xargs -0 sh -c 'GOWORK=off go tool -modfile="$0" misspell -error "$@"' "$tools/go.mod"
}

check_tidy() { each go mod tidy -diff; }

# A vulnerability that is found fails, and so does every other error; only a
# database out of reach does not.
# What the benchmarks link reaches no user.
check_govulncheck() (
	modules='. cmd/tickslot contrib/river contrib/watermill dlock/caslock/azurelock dlock/caslock/etcdlock health/grpchealth oteltickslot'
	each vulnerabilities
)

vulnerabilities() {
	out=$(tool govulncheck ./... 2>&1)
	code=$?
	case $code:$out in
	0:* | 3:*) ;;
	*"govulncheck: fetching vulnerabilities:"*)
		echo "govulncheck: database not reachable, not run"
		return 0
		;;
	esac
	echo "$out"
	return "$code"
}

[ $# -gt 0 ] || set -- golangci misspell tidy govulncheck
failed=
for check in "$@"; do
	case $check in
	golangci | misspell | tidy | govulncheck)
		"check_$check" || failed="$failed $check"
		;;
	*)
		echo "lint: no such check: $check" >&2
		exit 2
		;;
	esac
done
if [ -n "$failed" ]; then
	echo "lint: failed:$failed"
	exit 1
fi
