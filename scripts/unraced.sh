#!/bin/sh
# usage: scripts/unraced.sh stores|others|raced package...
#
# Prints those of the packages that make test runs without the race detector, or with it: the
# detector makes a test several times slower.
#   stores  wait for real servers, and share little memory: make race runs them with the detector
#   others  do one thing at a time; timer, whose tests take five times as long with it, is run under
#           the detector by make test-long
#   raced   all others
set -eu
which=$1
shift
stores='/dlock/(sqllock|redislock|nativelock|redlock)(/|$)|/cluster/(sqlregistry|redisregistry)$|/durable/internal/(postgres|sqlite)$|/outbox/internal/sqlstore$|/internal/sqlmigrate$|/proof/(acceptance|crash|registrycost|sqltest|redistest|servertest)$'
others='/tickslot$|/schedule$|/timer$|/proof/torture/(durable|outbox)$'
case $which in
stores) printf '%s\n' "$@" | grep -E "$stores" ;;
others) printf '%s\n' "$@" | grep -E "$others" ;;
raced) printf '%s\n' "$@" | grep -v -E "$stores|$others" ;;
*) exit 2 ;;
esac
