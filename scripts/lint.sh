#!/bin/sh
# usage: scripts/lint.sh [gofmt|vet|staticcheck|misspell|tidy|govulncheck]...
#
# Runs the named checks, or all of them, and fails if one of them does. The
# versions of the tools are pinned in internal/tools/go.mod, so that they are no
# dependency of the module itself. Why each is here: .golangci.yml.
set -u

tools=$PWD/internal/tools/go.mod
tool() {
	GOWORK=off go tool -modfile="$tools" "$@"
}

# each runs a command in every module, or in those that are set before it.
modules='. cluster/page/browsertest cmd/tickslot contrib/river contrib/watermill examples/migrate health/grpchealth internal/deploytest oteltickslot proof/benchmarks'
each() {
	bad=0
	for module in $modules; do
		(cd "$module" && "$@") || bad=1
	done
	return "$bad"
}

check_gofmt() {
	unformatted=$("$(go env GOROOT)/bin/gofmt" -l .) || return 1
	[ -z "$unformatted" ] && return 0
	echo "gofmt: not formatted:"
	echo "$unformatted"
	return 1
}

check_vet() { each go vet ./...; }

check_staticcheck() { each tool staticcheck ./...; }

check_misspell() {
	git ls-files '*.go' '*.md' '*.lua' '*.sql' '*.sh' '*.yml' '*.pml' Makefile | tr '\n' '\0' | xargs -0 sh -c 'GOWORK=off go tool -modfile="$0" misspell -error "$@"' "$tools"
}

check_tidy() { each go mod tidy -diff; }

# A vulnerability that is found fails, and so does every other error; only a
# database out of reach does not.
# What the benchmarks link reaches no user.
check_govulncheck() (
	modules='. cmd/tickslot contrib/river contrib/watermill health/grpchealth oteltickslot'
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

[ $# -gt 0 ] || set -- gofmt vet staticcheck misspell tidy govulncheck
failed=
for check in "$@"; do
	case $check in
	gofmt | vet | staticcheck | misspell | tidy | govulncheck)
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
