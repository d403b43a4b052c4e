//go:build linux && amd64

package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tickslot/tickslot/proof/torture/nemesis"
)

// The faults of a host, its network, and each kind of store. The most dangerous ones for leases
// come first, so that even a short torture includes them.
var (
	hostFaults = []string{"host_kill", "host_kill", "host_stop", "host_stop", "host_drain", "wall_clock_jump",
		"handler_panic", "handler_hang", "handler_ignore"}

	storeFaults = map[string][]string{
		"redis": {"store_data_lost", "store_data_lost", "store_kill", "store_stop", "store_connections_killed",
			"store_client_pause", "store_scripts_flushed", "store_right_revoked"},
		"sentinel": {"failover_stop", "failover_stop", "failover_unaware", "failover_cut_off", "failover_back",
			"failover_kill", "failover_graceful", "sentinel_stop", "sentinels_stop", "store_connections_killed"},
		"cluster": {"node_stop", "failover_stop", "failover_kill", "failover_graceful", "failover_forced",
			"store_connections_killed"},
		"postgres": append(slices.Clone(nemesis.PostgresFaults), "store_table_missing"),
		"mariadb":  nemesis.MariaDBFaults,
		"sqlite":   {"file_locked", "writer_killed"},
	}
)

// plan draws the faults for one store from a seed, and from nothing else.
func plan(kind string, seed uint64, hosts, doors int, length time.Duration, timing Timing) []nemesis.Fault {
	var tracks []nemesis.Track
	track := func(number uint64, target string, deck, first []string, mean time.Duration) {
		tracks = append(tracks, nemesis.Track{Number: number, Target: target, Deck: deck, First: first, Mean: mean,
			Lasts: func(kind string, random *rand.Rand) time.Duration { return lasts(kind, random, timing) },
			Busy: func(f nemesis.Fault) time.Duration {
				switch f.Kind { // here For is an amount, not a duration
				case "wall_clock_jump":
					return timing.TTL * 2
				case clocksStep:
					return together
				}
				return f.For
			}})
	}
	net := kind != "sqlite"
	for i := range hosts {
		cards := hostFaults
		if net {
			cards = slices.Concat(hostFaults, nemesis.NetworkFaults, []string{"pool_exhausted"})
		} else { // such a store uses the machine's clock: a single host's clock cannot be set
			cards = slices.DeleteFunc(slices.Clone(cards), func(c string) bool { return c == "wall_clock_jump" })
		}
		track(uint64(i), fmt.Sprint("host-", i), cards, nil, 4*time.Second)
	}
	if net {
		for i := range doors {
			track(100+uint64(i), fmt.Sprint("clients-", i), []string{"net_reset", "net_cut", "net_black_hole",
				"net_slow", "net_stranded", "net_replies_lost", "net_cut_inside"}, nil, 4*time.Second)
		}
	}
	mean := 4 * time.Second
	if kind == "cluster" || kind == "sentinel" {
		mean = 10 * time.Second
	}
	track(200, "store", storeFaults[kind], storeFaults[kind][:1], mean)
	track(300, "registry", registryFaults, nil, 3*time.Second)
	if kind == "redis" {
		track(400, "clocks", []string{clocksStep}, nil, 9*time.Second)
	}
	all := nemesis.Plan(seed, length, tracks...)
	// A rolling restart that changes a limit, and one that changes it back.
	for at := length / 5; at < length-length/5; at += max(length/3, 20*time.Second) {
		all = append(all, nemesis.Fault{At: at, Target: "fleet", Kind: "limit_changed"})
	}
	nemesis.Sort(all)
	return all
}

// lasts returns the duration of a fault.
func lasts(kind string, random *rand.Rand, timing Timing) time.Duration {
	ttl := timing.TTL
	switch kind {
	case "host_kill", "host_drain", "net_reset", "handler_panic", "handler_hang", "handler_ignore",
		"store_connections_killed", "store_scripts_flushed", "failover_graceful", "failover_forced", "failover_back":
		return 0
	case "host_stop":
		return ttl*8/10 + nemesis.UpTo(random, 2*ttl) // mostly longer than a lease
	case "wall_clock_jump":
		jump := 2*time.Second + nemesis.UpTo(random, 10*time.Second)
		if random.IntN(4) == 0 {
			jump += time.Hour
		}
		return jump.Truncate(time.Second)
	case clocksStep:
		by := steps[random.IntN(len(steps))]
		if random.IntN(2) == 0 {
			by = -by
		}
		return by
	case "node_stop": // several trust windows
		return 2*ttl + nemesis.UpTo(random, 4*ttl)
	case "failover_stop", "failover_cut_off", "failover_unaware":
		// A replica stands for election after one second.
		return 2500*time.Millisecond + nemesis.UpTo(random, 2*time.Second)
	case "failover_kill":
		return 2 * time.Second
	case "store_data_lost": // the store is back while holders of lost leases are still working
		return nemesis.UpTo(random, ttl/8)
	case "store_kill", "store_restart", "writer_killed":
		return nemesis.UpTo(random, ttl)
	case "registry_dropped", "registry_full", "registry_slow", "registry_gone":
		return registryTTL/2 + nemesis.UpTo(random, registryTTL)
	case "net_fading":
		return ttl/2 + nemesis.UpTo(random, ttl/4)
	default:
		return ttl/4 + nemesis.UpTo(random, 2*ttl)
	}
}
