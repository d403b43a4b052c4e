#!/bin/sh
# usage: scripts/unraced.sh stores|raced package...
#
# Prints those of the packages that scripts/test-race.sh runs in part, or whole:
#   stores  wait for real servers or for programs, and share little memory: make race runs all of them
#   raced   all others, but those that share no memory between goroutines and take long
set -eu
which=$1
shift
stores='/dlock/(sqllock|redislock|nativelock|redlock|caslock)(/|$)|/cluster/(sqlregistry|redisregistry)$|/durable/internal/(postgres|sqlite)$|/outbox/internal/sqlstore$|/internal/sqlmigrate$|/proof/(acceptance|crash|registrycost|sqltest|redistest|servertest|simulate)$|/examples/'
never='/tickslot$|/schedule$|/proof/torture/(durable|outbox)$'
case $which in
stores) printf '%s\n' "$@" | grep -E "$stores" ;;
raced) printf '%s\n' "$@" | grep -v -E "$stores|$never" ;;
*) exit 2 ;;
esac
