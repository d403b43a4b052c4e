#!/bin/sh
# usage: scripts/test.sh [argument of go test]...
#
# Runs go test, and prints a line for each package, or everything with VERBOSE=1. Then it searches
# the output of all tests, passed or not, for the password of every test server (servertest.Canary).
# Last it lists the tests that skipped because something is missing (each writes a line into the
# file named by TICKSLOT_SKIPS). The exit code is that of go test; or 1 if the password was found, or
# if a name in -run, which is '^(A|B|C)$' or 'A|B|C', matches no test, or none in one of the
# packages: otherwise a renamed test would silently not run.
set -u

show='^(ok|FAIL|\?|panic:|--- FAIL|go: |# )'
[ "${VERBOSE:-}" != 1 ] || show=

# Test servers and SQLite files wait for the disk at every commit: memory is faster, if there is
# enough.
if [ -z "${TMPDIR:-}" ] && [ "$(df -kP /dev/shm 2>/dev/null | awk 'END { print ($1 == "tmpfs" && $4 > 4000000) }')" = 1 ]; then
	dir=$(mktemp -d /dev/shm/tickslot-test.XXXXXX) || exit 1
	export TMPDIR="$dir"
else
	dir=$(mktemp -d "${TMPDIR:-/tmp}/tickslot-test.XXXXXX") || exit 1
fi
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
out=$dir/out
chmod 755 "$dir" # some servers refuse root, and are started as another user
# A new database server copies the data of the first one: to make them takes seven times as long.
if [ -z "${TICKSLOT_TEMPLATES:-}" ]; then
	mkdir "$dir/templates" || exit 1
	export TICKSLOT_TEMPLATES="$dir/templates"
fi

# SQLite is C that was translated to Go: the race detector makes it twenty times slower, and has
# nothing to find in it.
spare=
case " $* " in
*' -race '*) spare=-gcflags=modernc.org/...=-race=false ;;
esac

# The race detector needs a C compiler. Without one the tests still run without it, but not in CI.
norace=
if ! command -v "$(go env CC)" >/dev/null 2>&1 && [ "${TICKSLOT_REQUIRE_SERVERS:-}" != 1 ]; then
	norace="the race detector (-race): it needs a C compiler, and there is no $(go env CC)"
	for arg; do
		shift
		[ "$arg" = -race ] || set -- "$@" "$arg"
	done
fi

# To collect garbage took a seventh of the processor time of all tests, and the compiler's, too. The
# second limit is for machines with little memory.
export GOGC="${GOGC:-800}" GOMEMLIMIT="${GOMEMLIMIT:-2GiB}"

# A program under the race detector waits for a second when it ends (atexit_sleep_ms), which adds up.
# Without -trimpath each clone of the repository compiles everything anew, because the folder is part
# of what is compiled. go vet is a step of make lint. To link a hundred programs takes a third less
# without what only a debugger reads (-ldflags=-w).
{
	TICKSLOT_SKIPS=$dir/skips GORACE=${GORACE:-atexit_sleep_ms=50} go test -v -vet=off -trimpath -ldflags=-w $spare "$@" 2>&1
	echo $? >"$dir/code"
} | tee "$out" | grep -a --line-buffered -E "$show"
code=$(cat "$dir/code")

# ThreadSanitizer, of which the race detector is made, sometimes ends a program with an error of its
# own (tsan_rtl.cpp:346, seen with Go 1.26.8), which says nothing of the program. Such packages run
# once more.
crash='ThreadSanitizer: CHECK failed'
if [ "$code" -ne 0 ] && grep -a -q "$crash" "$out"; then
	again=$(awk -v crash="$crash" 'index($0, crash) { n = 1 } /^(ok  |FAIL)\t/ { if (n && $1 == "FAIL") print $2; n = 0 }' "$out")
	others=$(awk -v crash="$crash" 'index($0, crash) { n = 1 } /^(ok  |FAIL)\t/ { if (!n && $1 == "FAIL") print $2; n = 0 }' "$out")
	# shellcheck disable=SC2086
	echo "test: the race detector itself failed, so these packages run again:" $again
	for arg; do
		shift
		case $arg in
		./* | github.com/*) ;;
		*) set -- "$@" "$arg" ;;
		esac
	done
	{
		# shellcheck disable=SC2086 # packages have no spaces
		TICKSLOT_SKIPS=$dir/skips GORACE=${GORACE:-atexit_sleep_ms=50} go test -v -vet=off -trimpath -ldflags=-w $spare "$@" $again 2>&1
		echo $? >"$dir/code"
	} | tee "$out.again" | grep -a --line-buffered -E "$show"
	[ -n "$others" ] || code=$(cat "$dir/code")
	cat "$out.again" >>"$out"
fi
if [ "$code" -ne 0 ]; then
	echo
	LC_ALL=C awk -f "$(dirname "$0")/failures.awk" "$out" | grep -a -v '^$' | head -n 5000
fi

canary=$(sed -n 's/^const Canary = "\(.*\)"$/\1/p' "$(dirname "$0")/../proof/servertest/canary.go")
[ -n "$canary" ] || { echo "test: proof/servertest/canary.go has no password"; exit 1; }
hits=$(grep -a -c -F "$canary" "$out")
printf '{"tests":%d,"lines":%d,"passwords_told":%d}\n' "$(grep -a -c '^ *--- PASS' "$out")" "$(wc -l <"$out")" "$hits"
if [ "$hits" -ne 0 ]; then
	grep -a -n -F "$canary" "$out" | cut -c 1-300 | head -n 20
	[ "$code" -ne 0 ] || code=1
fi

run= next=
for arg; do
	[ -z "$next" ] || run=$arg
	next=
	case $arg in
	-run) next=1 ;;
	-run=*) run=${arg#-run=} ;;
	esac
done
if [ -n "$run" ] && [ "$code" -eq 0 ]; then
	for name in $(echo "$run" | sed 's/^^(\(.*\))\(\$*\)$/\1/; s/[|]/ /g'); do
		name=${name#^}
		grep -a -q "^=== RUN  *[A-Za-z0-9_]*$name" "$out" || { echo "test: there is no test $name"; code=1; }
	done
	grep -a 'no tests to run' "$out" | grep -a '^ok' && { echo "test: none of $run is in these packages"; code=1; }
fi

[ -z "$norace" ] || echo "$norace" >>"$dir/skips"
if [ -s "$dir/skips" ]; then
	echo
	echo "skipped:"
	sort -u "$dir/skips" | sed 's/^/  /'
fi
exit "$code"
