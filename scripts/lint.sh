#!/bin/sh
# usage: scripts/lint.sh [golangci|misspell|tidy|govulncheck]...
#
# Runs the named checks, or all of them, and fails if one of them fails. The tools are pinned in
# internal/tools, so that the module itself does not depend on them. .golangci.yml says which
# linters run, and why.
set -u

# tool runs a tool of the folder $tools, which is internal/tools or a folder in it.
tools=$PWD/internal/tools
tool() {
	GOWORK=off go tool -modfile="$tools/go.mod" "$@"
}

# each runs a command in every module, or in those that are set before it.
modules='. cluster/page/browsertest cmd/tickslot contrib/river contrib/watermill dlock/caslock/azurelock dlock/caslock/dynamolock dlock/caslock/etcdlock examples/migrate health/grpchealth internal/deploytest oteltickslot proof/benchmarks'
each() {
	bad=0
	for module in $modules; do
		(cd "$module" && "$@") || bad=1
	done
	return "$bad"
}

# Compiling golangci-lint takes minutes the first time.
check_golangci() (
	tools=$tools/golangci
	each tool golangci-lint run ./...
)

# golangci-lint reads only Go files.
check_misspell() {
	git ls-files '*.md' '*.lua' '*.sql' '*.sh' '*.yml' '*.pml' Makefile | tr '\n' '\0' | xargs -0 sh -c 'GOWORK=off go tool -modfile="$0" misspell -error "$@"' "$tools/go.mod"
}

check_tidy() { each go mod tidy -diff; }

# The check fails for a vulnerability and for every other error, except an unreachable database. The
# benchmarks are not checked, because users do not link them.
check_govulncheck() (
	modules='. cmd/tickslot contrib/river contrib/watermill dlock/caslock/azurelock dlock/caslock/dynamolock dlock/caslock/etcdlock health/grpchealth oteltickslot'
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
