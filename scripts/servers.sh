#!/bin/sh
# Makes sure that the servers the store tests start are installed. Starts none
# of them, and never fails: without a server, its tests skip and say so (or
# fail, under TICKSLOT_REQUIRE_SERVERS=1).
set -u

policy=/usr/sbin/policy-rc.d
log=
made_policy=

# shellcheck disable=SC2317 # called by the trap
cleanup() {
	[ -z "$log" ] || rm -f "$log"
	[ -z "$made_policy" ] || rm -f "$policy"
}

how() {
	if command -v brew >/dev/null 2>&1; then
		how='brew install redis'
	elif command -v apt-get >/dev/null 2>&1; then
		how='sudo apt-get install redis-server'
	else
		how="install your system's redis package"
	fi
	echo "servers: no redis-server in PATH, going on without; to get it: $how"
}

command -v redis-server >/dev/null 2>&1 && exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
	how
	exit 0
fi

echo "servers: no redis-server in PATH, installing it with apt-get"
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
apt install -y --no-install-recommends redis-server

# What counts is whether the program is there, not what apt-get thinks of it.
if ! command -v redis-server >/dev/null 2>&1; then
	tail -n 5 "$log"
	how
fi
exit 0
