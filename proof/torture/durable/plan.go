//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tickslot/tickslot/proof/torture"
	"github.com/tickslot/tickslot/proof/torture/nemesis"
)

// doors is the number of the clients' connections to the database.
const doors = 2

// hostsOf returns the number of workers. The processes of SQLite share one lock.
func hostsOf(kind string) int {
	if kind == "sqlite" {
		return 3
	}
	return 5
}

// plan draws the faults for one database from a seed, and from nothing else.
func plan(kind string, seed uint64, length, lease time.Duration) []nemesis.Fault {
	var tracks []nemesis.Track
	track := func(number uint64, target string, mean time.Duration, deck []string, first ...string) {
		tracks = append(tracks, nemesis.Track{Number: number, Target: target, Deck: deck, First: first, Mean: mean,
			Lasts: func(kind string, random *rand.Rand) time.Duration { return lasts(kind, random, lease) }})
	}
	net := kind != "sqlite"
	for i := range hostsOf(kind) {
		cards, mean := nemesis.HostFaults, 2*lease
		if net {
			cards, mean = slices.Concat(nemesis.HostFaults, nemesis.NetworkFaults), lease*5/3
		}
		track(uint64(i), fmt.Sprint("host-", i), mean, cards, nemesis.HostFaults[2*(i%2)])
	}
	if net {
		for i := range doors {
			track(100+uint64(i), fmt.Sprint("clients-", i), 3*lease, nemesis.NetworkFaults)
		}
	}
	store := nemesis.DatabaseFaults[kind]
	first := store[:1:1]
	if kind == "postgres" {
		store, first = append(slices.Clone(store), torture.Promoted), append(first, torture.Promoted)
	}
	track(200, "store", 4*lease, store, first...)
	track(300, "fleet", 13*lease, []string{"fleet_kill"})
	return nemesis.Plan(seed, length, tracks...)
}

// lasts returns the duration of a fault.
func lasts(kind string, random *rand.Rand, lease time.Duration) time.Duration {
	switch kind {
	case "host_kill", "host_drain", "net_reset", "store_connections_killed":
		return 0
	case "host_stop", "net_black_hole", "net_stranded": // mostly longer than a lease
		return lease*8/10 + nemesis.UpTo(random, 2*lease)
	case "fleet_kill": // so that ticks are missed
		return nemesis.UpTo(random, 2*lease)
	case torture.Promoted: // the standby lacks this much time
		return time.Second + nemesis.UpTo(random, 2*time.Second)
	case "net_fading":
		return lease/2 + nemesis.UpTo(random, lease/4)
	case "store_stop", "bouncer_stop":
		return lease/4 + nemesis.UpTo(random, lease*3/2)
	default:
		return lease/10 + nemesis.UpTo(random, lease)
	}
}
