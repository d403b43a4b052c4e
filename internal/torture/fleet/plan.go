//go:build linux && amd64

package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// A fault is one planned disturbance of a process or server.
type fault struct {
	At     time.Duration // since the beginning; later if its target is still busy with the one before
	Target string        // host-3, clients-0, store, fleet
	Kind   string
	For    time.Duration // for how long, or by how much
	Pick   int           // which one, where there is a choice
}

func (f fault) String() string {
	return fmt.Sprintf("%8s  %-10s %-20s %v", f.At.Round(time.Millisecond), f.Target, f.Kind,
		f.For.Round(time.Millisecond))
}

// What can be done to a host, to its network, and to each kind of store: first comes what endangers
// leases most, so that it is done however short the torture is.
var (
	hostFaults = []string{"host_kill", "host_kill", "host_stop", "host_stop", "host_drain", "wall_clock_jump",
		"handler_panic", "handler_hang", "handler_ignore"}
	netFaults = []string{"net_reset", "net_cut", "net_black_hole", "net_black_hole", "net_slow", "net_fading",
		"net_fading", "net_stranded", "net_replies_lost", "pool_exhausted"}

	storeFaults = map[string][]string{
		"redis": {"store_data_lost", "store_data_lost", "store_kill", "store_stop", "store_connections_killed",
			"store_client_pause", "store_scripts_flushed", "store_right_revoked"},
		"sentinel": {"failover_stop", "failover_stop", "failover_unaware", "failover_cut_off", "failover_back",
			"failover_kill", "failover_graceful", "sentinel_stop", "sentinels_stop", "store_connections_killed"},
		"cluster": {"node_stop", "failover_stop", "failover_kill", "failover_graceful", "failover_forced",
			"store_connections_killed"},
		"postgres": {"store_kill", "store_stop", "store_restart", "store_connections_killed", "store_table_locked",
			"store_rows_locked", "store_table_missing"},
		"sqlite": {"file_locked", "writer_killed"},
	}
)

// A deck deals faults in random order, each one before any comes twice.
type deck struct {
	random      *rand.Rand
	cards, left []string
}

func (d *deck) deal() string {
	if len(d.left) == 0 {
		d.left = slices.Clone(d.cards)
		d.random.Shuffle(len(d.left), func(i, j int) { d.left[i], d.left[j] = d.left[j], d.left[i] })
	}
	card := d.left[0]
	d.left = d.left[1:]
	return card
}

// plan draws the faults of one store's torture from a seed, and nothing else.
func plan(kind string, seed uint64, hosts, doors int, length time.Duration, timing Timing) []fault {
	var all []fault
	track := func(number uint64, target string, d *deck, mean time.Duration) {
		random := rand.New(rand.NewPCG(seed, number))
		d.random = random
		for at := mean/4 + upTo(random, mean); at < length; {
			f := fault{At: at, Target: target, Kind: d.deal(), Pick: random.IntN(1 << 20)}
			f.For = lasts(f.Kind, random, timing)
			all = append(all, f)
			at += f.For + mean/3 + time.Duration(random.ExpFloat64()*float64(mean)*2/3)
			if f.Kind == "wall_clock_jump" { // that is by how much, not for how long
				at += -f.For + timing.TTL*2
			}
		}
	}
	net := kind != "sqlite"
	for i := range hosts {
		cards := hostFaults
		if net {
			cards = slices.Concat(hostFaults, netFaults)
		} else { // the clock of such a store is the machine's: one host's alone cannot be set
			cards = slices.DeleteFunc(slices.Clone(cards), func(c string) bool { return c == "wall_clock_jump" })
		}
		track(uint64(i), fmt.Sprint("host-", i), &deck{cards: cards}, 4*time.Second)
	}
	if net {
		for i := range doors {
			track(100+uint64(i), fmt.Sprint("clients-", i), &deck{cards: []string{"net_reset", "net_cut",
				"net_black_hole", "net_slow", "net_stranded", "net_replies_lost"}}, 4*time.Second)
		}
	}
	mean := 4 * time.Second
	if kind == "cluster" || kind == "sentinel" {
		mean = 10 * time.Second
	}
	track(200, "store", &deck{cards: storeFaults[kind], left: storeFaults[kind][:1]}, mean)
	track(300, "registry", &deck{cards: registryFaults}, 3*time.Second)
	// A rolling restart that changes a limit, and one that changes it back.
	for at := length / 5; at < length-length/5; at += max(length/3, 20*time.Second) {
		all = append(all, fault{At: at, Target: "fleet", Kind: "limit_changed"})
	}
	slices.SortStableFunc(all, func(a, b fault) int { return cmp.Compare(a.At, b.At) })
	return all
}

// lasts is how long a fault lasts.
func lasts(kind string, random *rand.Rand, timing Timing) time.Duration {
	ttl := timing.TTL
	switch kind {
	case "host_kill", "host_drain", "net_reset", "handler_panic", "handler_hang", "handler_ignore",
		"store_connections_killed", "store_scripts_flushed", "failover_graceful", "failover_forced", "failover_back":
		return 0
	case "host_stop":
		return ttl*8/10 + upTo(random, 2*ttl) // mostly beyond what its leases last
	case "wall_clock_jump":
		jump := 2*time.Second + upTo(random, 10*time.Second)
		if random.IntN(4) == 0 {
			jump += time.Hour
		}
		return jump.Truncate(time.Second)
	case "node_stop": // several trust windows
		return 2*ttl + upTo(random, 4*ttl)
	case "failover_stop", "failover_cut_off", "failover_unaware":
		return 2500*time.Millisecond + upTo(random, 2*time.Second) // a replica stands for election after one second
	case "failover_kill":
		return 2 * time.Second
	case "store_data_lost": // it is back while those that it has forgotten are still at work
		return upTo(random, ttl/8)
	case "store_kill", "store_restart", "writer_killed":
		return upTo(random, ttl)
	case "registry_dropped", "registry_full", "registry_slow", "registry_gone":
		return registryTTL/2 + upTo(random, registryTTL)
	case "net_fading":
		return ttl/2 + upTo(random, ttl/4)
	default:
		return ttl/4 + upTo(random, 2*ttl)
	}
}

func upTo(random *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(most)))
}
