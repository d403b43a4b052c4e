#!/bin/sh
# Checks proof/model/lease.pml with spin: the model must have no error in any state, each mutant
# must have one, and the events that the model is about must be reachable. Prints one line for each
# check, and fails if a result is not as expected.
set -u
export LC_ALL=C

cd "$(dirname "$0")/.." || exit 1
for program in spin gcc; do
	command -v "$program" >/dev/null 2>&1 || {
		echo "model: $program is missing (Debian packages spin, gcc, libc6-dev)" >&2
		exit 1
	}
done
model=$PWD/proof/model/lease.pml
dir=$(mktemp -d "${TMPDIR:-/tmp}/tickslot-model.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
cd "$dir" || exit 1
failed=

# check TITLE WANTED [-D...]: WANTED is "holds" or "refuted".
check() {
	title=$1 wanted=$2
	shift 2
	rm -f pan* lease.pml.trail
	cp "$model" lease.pml
	if ! { spin -a "$@" lease.pml && gcc -O1 -w -DSAFETY -DMEMLIM=1900 -o pan pan.c; } >spin.out 2>&1; then
		cat spin.out
		failed="$failed; $title"
		return
	fi
	./pan -m20000 -w23 >pan.out 2>&1
	states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.out)
	seconds=$(sed -n 's/.*elapsed time \([0-9.e+-]*\) seconds.*/\1/p' pan.out)
	case $(cat pan.out) in
	*'out of memory'* | *'reached -DMEMLIM'* | *'max search depth too small'* | *'Search not completed'*'errors: 0'*) found='not searched to the end' ;;
	*'assertion violated'*) found=refuted ;;
	*'errors: 0'*) found=holds ;;
	*) found='no result' ;;
	esac
	printf '%-9s %9s states %6ss  %s%s\n' "$found" "${states:-?}" "${seconds:-?}" "$title" "$([ "$found" = "$wanted" ] || echo " <- should be: $wanted")"
	[ "$found" = "$wanted" ] || {
		failed="$failed; $title"
		grep -E '^pan:|error' pan.out
	}
}

check 'the protocol' holds
check 'its fences' holds -DFENCES -DNO_DRIFT
check 'a run whose slot went to another is never valid again' holds -DNEVER_AGAIN -DNO_RESTART -DNO_DRIFT
check 'three attempts, without heartbeats, restart and drift' holds -DATTEMPTS=3 -DNO_HEARTBEAT -DNO_RESTART -DNO_DRIFT

# shellcheck disable=SC2013 # words
for mutant in $(sed -n 's/.*\(MUTANT_[A-Z_0-9]\{1,\}\).*/\1/p' "$model" | sort -u); do
	case $mutant in
	MUTANT_TOKEN_USED_AGAIN) more='-DATTEMPTS=3 -DNO_HEARTBEAT -DNO_RESTART -DNO_DRIFT' ;;
	# See "What it found" in proof/model/README.md.
	MUTANT_OPENED_AGAIN) more='-DNEVER_AGAIN -DNO_RESTART -DNO_DRIFT' ;;
	MUTANT_FENCE_IS_A_COUNTER) more=-DFENCES ;;
	*) more= ;;
	esac
	# shellcheck disable=SC2086 # several words, or none
	check "$mutant" refuted -D"$mutant" $more
done

# The events that the model is about must be reachable in it.
while read -r goal more what; do
	check "reached: $what" refuted -DGOAL="$goal" "$more"
done <<'END'
1 -DREACH a grant after a restart of the store
2 -DREACH a reply is lost, the same token asked again, and its grant found
3 -DREACH a second grant
4 -DREACH a lease is lost because its window closed
5 -DREACH an acquire of unknown outcome is released by its token
6 -DREACH an acquire that comes too late takes a slot for nobody
7 -DKILL the slot of a killed host is granted again
8 -DREACH a process stands still until its window has closed
9 -DREACH a lease is renewed
10 -DREACH a slot is granted while its old handler has not returned
11 -DREACH a free slot is refused in quarantine
12 -DREACH a renewal that would open the window again comes when it has closed
13 -DREACH a heartbeat is told that the lease is lost
END

[ -z "$failed" ] || {
	echo "model: not as it should be:$failed" >&2
	exit 1
}
echo 'model: all as it should be'
