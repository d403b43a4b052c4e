#!/bin/sh
# Makes sure that the servers the store tests start are installed, and the C
# compiler that the race detector needs. Starts nothing, and never fails:
# without a server, its tests skip and say so (or fail, under
# TICKSLOT_REQUIRE_SERVERS=1); without a compiler, scripts/test.sh says so.
set -u

policy=/usr/sbin/policy-rc.d
log=
made_policy=

# shellcheck disable=SC2317 # called by the trap
cleanup() {
	[ -z "$log" ] || rm -f "$log"
	[ -z "$made_policy" ] || rm -f "$policy"
}

# missing prints the Debian packages of what is not there.
missing() {
	command -v redis-server >/dev/null 2>&1 || printf 'redis-server '
	command -v "$(go env CC)" >/dev/null 2>&1 || printf 'gcc libc6-dev '
}

how() {
	if command -v brew >/dev/null 2>&1; then
		how='brew install redis, xcode-select --install'
	elif command -v apt-get >/dev/null 2>&1; then
		how="sudo apt-get install $(missing)"
	else
		how="install your system's packages of redis and a C compiler"
	fi
	echo "servers: missing: $(missing)- going on without; to get it: $how"
}

[ -n "$(missing)" ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
	how
	exit 0
fi

echo "servers: installing with apt-get: $(missing)"
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
log=$(mktemp "${TMPDIR:-/tmp}/tickslot-servers.XXXXXX") || { how; exit 0; }

# Keep the package from starting a daemon: the tests start their own. A policy
# that is already there is somebody's decision and stays.
if [ ! -e "$policy" ] && [ ! -L "$policy" ] &&
	(printf '#!/bin/sh\nexit 101\n' >"$policy") 2>/dev/null; then
	made_policy=1
	chmod 755 "$policy"
fi

apt() {
	DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -q \
		-o DPkg::Lock::Timeout=60 -o Acquire::Retries=1 \
		-o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 \
		"$@" >>"$log" 2>&1 </dev/null
}

apt update # a stale index may still do
# shellcheck disable=SC2046 # several words
apt install -y --no-install-recommends $(missing)

# What counts is whether the programs are there, not what apt-get thinks of it.
if [ -n "$(missing)" ]; then
	tail -n 5 "$log"
	how
fi
exit 0
