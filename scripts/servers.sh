#!/bin/sh
# usage: scripts/servers.sh [browser]
#
# Installs missing programs that the tests need: the servers that store tests start, the C compiler
# for the race detector, the library that sets a server's clock, the model checker, the tools that
# check deploy/ (Prometheus, systemd), and the terminal tmux. With the argument browser, it also
# installs the large programs for the tests of the operator's page: Chromium, and axe-core from npm.
# The script starts nothing and never fails. Without a server, its tests skip and say so, or fail
# under TICKSLOT_REQUIRE_SERVERS=1. Without a compiler, scripts/test.sh says so.
set -u
cd -- "$(dirname -- "$0")/.." || exit
browser=${1:-}

policy=/usr/sbin/policy-rc.d
clusters=/etc/postgresql-common/createcluster.d
log=
made_policy=
made_clusters=

# shellcheck disable=SC2317 # called by the trap
cleanup() {
	[ -z "$log" ] || rm -f "$log"
	[ -z "$made_policy" ] || rm -f "$policy"
	[ -z "$made_clusters" ] || rm -rf "$clusters"
}

# there succeeds if one of the programs is found, in PATH or in folders that PATH may lack.
there() {
	for program; do
		PATH=$PATH:/usr/sbin:/usr/libexec command -v "$program" >/dev/null 2>&1 && return
	done
	return 1
}

# faketime succeeds if the library that sets a server's clock is installed.
faketime() {
	for library in /usr/lib/*/faketime /usr/lib64/faketime /usr/lib/faketime /usr/local/lib/faketime; do
		[ ! -e "$library/libfaketime.so.1" ] || return 0
	done
	return 1
}

# missing prints the Debian packages of the missing programs.
missing() {
	there redis-server || printf 'redis-server '
	there postgres /usr/lib/postgresql/*/bin/postgres /usr/pgsql-*/bin/postgres || printf 'postgresql '
	there mariadbd mysqld || printf 'mariadb-server-core '
	there mariadb mysql || printf 'mariadb-client-core '
	there pgbouncer "$HOME"/.cache/tickslot/servers/pgbouncer-*/usr/sbin/pgbouncer \
		/var/cache/tickslot/servers/pgbouncer-*/usr/sbin/pgbouncer || printf 'pgbouncer '
	there haproxy || printf 'haproxy '
	there nginx || printf 'nginx '
	there spin || printf 'spin '
	there promtool || printf 'prometheus '
	there tmux || printf 'tmux '
	[ "$(uname)" != Linux ] || there systemd-analyze || printf 'systemd '
	[ "$(uname)" != Linux ] || faketime || printf 'libfaketime '
	command -v "$(go env CC)" >/dev/null 2>&1 || printf 'gcc libc6-dev '
	[ "$browser" != browser ] || there chromium chromium-browser google-chrome google-chrome-stable || printf 'chromium '
}

# axe downloads the version of axe-core that the lock file names and verifies its checksum. It does
# not use Debian's npm, which is large.
axe() {
	[ "$browser" = browser ] || return 0
	(
		cd cluster/page/browsertest || exit
		pinned=$(sed -n 's/.*"axe-core": "\(.*\)".*/\1/p' package.json)
		grep -q "\"version\": \"$pinned\"" node_modules/axe-core/package.json 2>/dev/null && exit
		npm ci --ignore-scripts --no-audit --no-fund >/dev/null 2>&1 </dev/null ||
			echo 'servers: missing: axe-core - going on without; to get it: install npm, then npm ci --ignore-scripts in cluster/page/browsertest'
	)
}

how() {
	if command -v brew >/dev/null 2>&1; then
		how='brew install redis postgresql mariadb pgbouncer haproxy nginx spin prometheus tmux, xcode-select --install'
	elif command -v apt-get >/dev/null 2>&1; then
		how="sudo apt-get install $(missing)"
	else
		how="install your system's packages of redis, postgresql, mariadb, pgbouncer, haproxy, nginx, spin, prometheus, tmux, libfaketime, and a C compiler"
	fi
	echo "servers: missing: $(missing)- going on without; to get it: $how"
}

# Fetch MySQL, because Debian 12 has only MariaDB, and a PgBouncer that does not exit on its own.
if [ "$(uname -sm)" = 'Linux x86_64' ] && command -v apt-get >/dev/null 2>&1; then
	sh scripts/fetch.sh mysql pgbouncer-1.26 >/dev/null
fi
# Emulators of clouds' tables, which are programs of node. Debian's npm is large, so it is not installed
# for them.
if there node && there npm; then
	sh scripts/fetch.sh azurite-3.35 dynalite-4 >/dev/null
else
	echo 'servers: missing: azurite, dynalite - going on without; to get them: install node and npm'
fi
axe
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

# Keep the packages from starting a daemon, because the tests start their own. A policy that already
# exists is an administrator's decision and stays.
if [ ! -e "$policy" ] && [ ! -L "$policy" ] &&
	(printf '#!/bin/sh\nexit 101\n' >"$policy") 2>/dev/null; then
	made_policy=1
	chmod 755 "$policy"
fi

# Keep Postgres from creating a database cluster that starts at boot.
if [ ! -e "$clusters" ] && mkdir -p "$clusters" 2>/dev/null; then
	made_clusters=1
	echo 'create_main_cluster = false' >"$clusters/tickslot.conf"
fi

apt() {
	DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -q \
		-o DPkg::Lock::Timeout=60 -o Acquire::Retries=1 \
		-o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 \
		"$@" >>"$log" 2>&1 </dev/null
}

apt update # a stale index may be good enough
# shellcheck disable=SC2046 # several words
apt install -y --no-remove --no-install-recommends $(missing)

# Check for the programs themselves, not for the exit code of apt-get.
if [ -n "$(missing)" ]; then
	tail -n 5 "$log"
	how
fi
exit 0
