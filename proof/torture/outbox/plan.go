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

const (
	hosts     = 3 // with one relay each
	receivers = 2
	producers = 2
)

// plan draws the faults for one database from a seed, and from nothing else.
func plan(kind string, seed uint64, length, lease time.Duration) []nemesis.Fault {
	var tracks []nemesis.Track
	track := func(number uint64, target string, mean time.Duration, deck []string, first ...string) {
		tracks = append(tracks, nemesis.Track{Number: number, Target: target, Deck: deck, First: first, Mean: mean,
			Lasts: func(kind string, random *rand.Rand) time.Duration { return lasts(kind, random, lease) }})
	}
	deck := nemesis.HostFaults
	if kind != "sqlite" {
		deck = slices.Concat(deck, nemesis.NetworkFaults)
	}
	for i := range hosts {
		track(uint64(i), fmt.Sprint("host-", i), 3*lease, deck, nemesis.HostFaults[2*(i%2)])
	}
	for i := range receivers {
		track(100+uint64(i), fmt.Sprint("receiver-", i), 4*lease, deck, nemesis.HostFaults[2*(i%2)])
	}
	for i := range producers {
		track(200+uint64(i), fmt.Sprint("producer-", i), 3*lease, deck)
	}
	store := nemesis.DatabaseFaults[kind]
	first := store[:1:1]
	if kind == "postgres" {
		store, first = append(slices.Clone(store), torture.Promoted), append(first, torture.Promoted)
	}
	track(300, "store", 5*lease, store, first...)
	track(400, "fleet", 13*lease, []string{"fleet_kill"})
	track(500, "topic-"+stuck, 3*lease, []string{"receivers_hang"})
	return nemesis.Plan(seed, length, tracks...)
}

// lasts returns the duration of a fault.
func lasts(kind string, random *rand.Rand, lease time.Duration) time.Duration {
	switch kind {
	case "host_kill", "host_drain", "net_reset", "store_connections_killed":
		return 0
	case "host_stop", "net_black_hole", "net_stranded": // mostly longer than a lease
		return lease*8/10 + nemesis.UpTo(random, 2*lease)
	case torture.Promoted: // the standby lacks this much time
		return time.Second + nemesis.UpTo(random, 2*time.Second)
	case "receivers_hang": // longer than leases, calls and deliveries
		return lease*3/2 + nemesis.UpTo(random, 2*lease)
	case "net_fading":
		return lease/2 + nemesis.UpTo(random, lease/4)
	case "store_stop", "bouncer_stop":
		return lease/4 + nemesis.UpTo(random, lease*3/2)
	default:
		return lease/10 + nemesis.UpTo(random, lease)
	}
}
