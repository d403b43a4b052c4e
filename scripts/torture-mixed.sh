#!/bin/sh
# usage: scripts/torture-mixed.sh [COMMIT]
#
# Tortures a fleet of two versions: every second host runs the program of COMMIT, and the others run
# the program of this folder. COMMIT defaults to the newest tag, or, if there is no tag, to the
# twentieth commit before HEAD.
set -eu

commit=${1:-$(git describe --tags --abbrev=0 2>/dev/null || echo HEAD~20)}
git rev-parse -q --verify "$commit^{commit}" >/dev/null ||
	{ echo "torture-mixed: there is no commit $commit here: name one (make proof WHAT=torture-mixed OTHER=...), or fetch the whole history" >&2; exit 1; }

dir=$(mktemp -d "${TMPDIR:-/tmp}/tickslot-other.XXXXXX")
trap 'git worktree remove --force "$dir/tree" 2>/dev/null; rm -rf "$dir"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

git worktree add -q --detach "$dir/tree" "$commit"
folder=proof
[ -d "$dir/tree/proof" ] || folder=internal # the name of the folder until November 2026
(cd "$dir/tree" && go build -tags sqlite -o "$dir/fleet" "./$folder/torture/fleet")
echo "every second host runs $(git log -1 --format='%h %cs %s' "$commit")"
go run -tags sqlite ./proof/torture/fleet -store redis,postgres,sqlite -other "$dir/fleet" -for "${FOR:-6m}" ${SEED:+-seed $SEED}
