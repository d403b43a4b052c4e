//go:build linux && amd64

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/proof/torture"
	"github.com/tickslot/tickslot/proof/torture/linear"
	"github.com/tickslot/tickslot/proof/torture/nemesis"
)

// These are the least counts for a meaningful torture.
const (
	leastRuns   = 500
	leastTerms  = 20
	leastFaults = 10
	leastShare  = 0.2
	// leastRateUsed is the share of a rate that must be used, with the flag -rates.
	leastRateUsed = 0.95
	// A torture of several stores must do more.
	runsPerHalfHour   = 100_000
	faultsPerHalfHour = 500
	kindsOfSeveral    = 12
	// doors is the number of the clients' connections to the store.
	doors = 2
	// patience bounds the check of one name.
	patience = 5 * time.Minute
)

type report struct {
	Store            string           `json:"store"`
	Seed             uint64           `json:"seed"`
	Seconds          float64          `json:"seconds"`
	Hosts            int              `json:"hosts"`
	Lives            int              `json:"processes"`
	Runs             int              `json:"runs"`
	Terms            int              `json:"leader_terms"`
	Degraded         int              `json:"degraded_runs"`
	DegradedMost     int              `json:"degraded_most_at_once"`
	LeasesLost       int              `json:"leases_lost"`
	Faults           int              `json:"faults"`
	FaultKinds       map[string]int   `json:"fault_kinds"`
	OverLimit        int              `json:"over_limit"`
	SameSlot         int              `json:"two_in_one_slot"`
	FenceRegressions int              `json:"fence_regressions"`
	StartAfterLost   int              `json:"start_after_lost"`
	NotTold          int              `json:"not_told"`
	OverTick         int              `json:"over_tick"`
	OverRate         int              `json:"over_rate"`
	Rated            int              `json:"rated_starts"`
	RateUsed         float64          `json:"rate_used"`
	RateWindows      int              `json:"rate_windows"`
	OverBound        int              `json:"degraded_over_bound"`
	Ticks            int64            `json:"ticks"`
	Unaccounted      int64            `json:"unaccounted"`
	Leaked           int              `json:"leaked_goroutines"`
	Stuck            int              `json:"stuck_handlers"`
	Late             int              `json:"slots_not_free_after_ttl"`
	Silent           int              `json:"silent_after_heal"`
	Warnings         int              `json:"registry_warnings"`
	WarnedTwice      int              `json:"registry_warned_twice"`
	LostByRegistry   int              `json:"leases_lost_by_registry"`
	LostToSlowness   int              `json:"leases_lost_to_slowness,omitempty"`
	Blind            int              `json:"registry_blind_hosts"`
	NReachedShare    float64          `json:"n_reached_share"`
	Declared         torture.Declared `json:"declared"`
	Linearizable     bool             `json:"linearizable"`
	LockOps          int              `json:"lock_ops"`
	LockUnknown      int              `json:"lock_ops_unknown"`
	LockNames        int              `json:"lock_histories"`
	LockExcused      int              `json:"lock_histories_in_failover,omitempty"`
	LockUndecided    int              `json:"lock_histories_undecided,omitempty"`
	Broken           []string         `json:"broken,omitempty"`
	TooWeak          []string         `json:"too_weak,omitempty"`
	Examples         []string         `json:"examples,omitempty"`
}

func (r report) ok() bool { return len(r.Broken) == 0 && len(r.TooWeak) == 0 }

func main() {
	redis.SetLogger(silence{}) // go-redis logs every connection that the faults break
	if text := os.Getenv(nemesis.SpecEnv); text != "" {
		if err := runRole(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	kinds := flag.String("store", "redis",
		"redis, sentinel, cluster, postgres, mariadb, sqlite; several with commas, one after the other")
	length := flag.Duration("for", 40*time.Second, "how long, all stores together")
	hosts := flag.Int("hosts", 6, "how many hosts")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the choice of faults")
	other := flag.String("other", "",
		"the `PATH` of another build of this program, of an earlier version perhaps, for every second host")
	rates := flag.Bool("rates", false,
		"torture limits with a rate: other timers run seldom, and a rest without faults shows how much of it is used")
	show := flag.Bool("plan", false, "print what is to be done, and do nothing")
	keep := flag.String("logs", "", "the `FOLDER` for the logs (default: one that is removed if all was well)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	stores := strings.Split(*kinds, ",")
	each, rest := *length/time.Duration(len(stores)), time.Duration(0)
	if *rates {
		rest = 3 * manyPer
	}
	if *show {
		for _, kind := range stores {
			t, err := timingOf(kind)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(2)
			}
			fmt.Println(kind)
			for _, f := range plan(kind, *seed, *hosts, doors, t.tormented(each)-rest, t) {
				fmt.Println(f)
			}
		}
		return
	}
	dir, err := folder(*keep)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	fmt.Fprintf(os.Stderr, "torture: -store %s -for %v -hosts %d -seed %d, logs in %s\n", *kinds, *length, *hosts,
		*seed, dir)
	var all []report
	for _, kind := range stores {
		if ctx.Err() != nil {
			break
		}
		r, err := run(ctx, kind, dir, *other, *seed, *hosts, each, rest)
		if err != nil {
			r.Broken = append(r.Broken, err.Error())
		}
		if *rates && r.RateUsed < leastRateUsed {
			r.TooWeak = append(r.TooWeak, "rate_used")
		}
		all = append(all, r)
		if len(stores) > 1 {
			r.print()
		}
	}
	total := sum(all)
	if len(stores) > 1 {
		share := length.Minutes() / 30
		for what, weak := range map[string]bool{
			"runs":        float64(total.Runs) < share*runsPerHalfHour,
			"faults":      float64(total.Faults) < share*faultsPerHalfHour,
			"fault_kinds": len(total.FaultKinds) < kindsOfSeveral,
		} {
			if weak {
				total.TooWeak = append(total.TooWeak, what+" in all")
			}
		}
	}
	total.print()
	if !total.ok() {
		fmt.Fprintf(os.Stderr, "torture: broken, or too weak to tell; the logs are in %s\n", dir)
		os.Exit(1)
	}
	if *keep == "" {
		_ = os.RemoveAll(dir)
	}
}

func (r report) print() {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}

func folder(keep string) (string, error) {
	if keep == "" {
		return os.MkdirTemp("", "tickslot-torture-")
	}
	return keep, os.MkdirAll(keep, 0o755)
}

func timingOf(kind string) (Timing, error) {
	s, ok := map[string]store{"redis": &redisStore{}, "sentinel": &sentinelStore{}, "cluster": &clusterStore{},
		"postgres": &postgresStore{}, "mariadb": &mariaStore{}, "sqlite": &fileStore{}}[kind]
	if !ok {
		return Timing{}, fmt.Errorf("no store %q: use redis, sentinel, cluster, postgres, mariadb or sqlite", kind)
	}
	return s.timing(), nil
}

// runRole runs the role of a child process.
func runRole(text string) error {
	var spec Spec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return err
	}
	log, err := torture.OpenLog(spec.Dir, spec.Name, nemesis.Mono)
	if err != nil {
		return err
	}
	switch spec.Role {
	case "host":
		return runHost(spec, log)
	case "clients":
		return runClients(spec, log)
	case "migrate":
		return migrate(spec.Store[0], spec.Timing)
	default:
		return runWriter(spec)
	}
}

// run tortures one store.
func run(ctx context.Context, kind, dir, other string, seed uint64, hosts int,
	length, rest time.Duration) (r report, err error) {
	r = report{Store: kind, Seed: seed, Hosts: hosts}
	began := time.Now()
	t, err := newTormentor(kind, dir, other, seed, hosts, doors, rest > 0)
	if t != nil {
		defer t.close()
	}
	if err != nil {
		return r, err
	}
	tormented := t.timing.tormented(length) - rest
	if tormented < 5*time.Second {
		return r, fmt.Errorf("%v are too short: at least %v", length, 5*time.Second+length-tormented)
	}
	settled, until := t.torment(ctx, plan(kind, seed, hosts, doors, tormented, t.timing), tormented, rest)
	t.end()
	r.Seconds = time.Since(began).Seconds()
	lines, err := torture.ReadLogs(t.dir)
	if err != nil {
		return r, err
	}
	r.FaultKinds = t.faults
	for _, n := range t.faults {
		r.Faults += n
	}
	for _, m := range t.members {
		r.Lives += m.lives
	}
	r.Late, r.Blind = t.late, len(t.blind)
	for _, err := range t.broken {
		r.Broken = append(r.Broken, err.Error())
	}
	r.judge(lines, torture.Rules{TTL: t.timing.TTL, Settled: settled, CalmUntil: until,
		Bound: time.Second + t.timing.StoreTimeout})
	r.Examples = append(r.Examples, t.blind...)
	return r, nil
}

// judge examines the logs.
func (r *report) judge(lines []torture.Line, rules torture.Rules) {
	histories := r.linear(lines, rules)
	f := torture.Examine(lines, rules)
	r.Runs, r.Terms, r.LeasesLost = f.Runs, f.Terms, f.LeasesLost
	r.Degraded, r.DegradedMost = f.Degraded, f.DegradedMost
	r.OverLimit, r.SameSlot, r.FenceRegressions, r.StartAfterLost = f.OverLimit, f.SameSlot, f.FenceRegressions,
		f.StartAfterLost
	r.NotTold, r.OverTick, r.OverBound, r.Ticks, r.Unaccounted = f.NotTold, f.OverTick, f.OverBound, f.Ticks,
		f.Unaccounted
	r.OverRate, r.Rated, r.RateUsed, r.RateWindows = f.OverRate, f.Rated, f.RateUsed, f.RateWindows
	r.Leaked, r.Stuck, r.Silent, r.NReachedShare, r.Declared = f.Leaked, f.Stuck, len(f.Silent), f.NReachedShare,
		f.Declared
	r.Warnings, r.WarnedTwice = f.Warnings, f.WarnedTwice
	r.LostByRegistry, r.LostToSlowness = f.LostByRegistry, f.LostToSlowness
	r.Examples = append(f.Examples, histories...)
	if n := f.Violations(); n > 0 {
		r.Broken = append(r.Broken, fmt.Sprintf("%d violations", n))
	}
	if r.Late > 0 {
		r.Broken = append(r.Broken, "slots of killed hosts were not free after a TTL")
	}
	if r.Blind > 0 {
		r.Broken = append(r.Broken, "hosts do not see all others in the registry")
	}
	if !r.Linearizable {
		r.Broken = append(r.Broken, "not linearizable")
	}
	for what, weak := range map[string]bool{"runs": r.Runs < leastRuns, "leader_terms": r.Terms < leastTerms,
		"faults": r.Faults < leastFaults, "registry_warnings": r.Warnings == 0,
		"n_reached_share": r.NReachedShare < leastShare} {
		if weak {
			r.TooWeak = append(r.TooWeak, what)
		}
	}
}

// linear checks the clients' calls for each name.
func (r *report) linear(lines []torture.Line, rules torture.Rules) (examples []string) {
	ceased := carriedOut(lines)
	var forgets []linear.Span
	var failovers []linear.Span
	byName := map[string][]torture.Op{}
	for _, l := range lines {
		switch {
		case l.Kind == torture.Locked:
			op := *l.Op
			r.LockOps++
			if op.Result == "unknown" {
				r.LockUnknown++
				op.Until = ceased(op)
			}
			byName[op.Name] = append(byName[op.Name], op)
		case l.Kind == torture.Fault && l.Fault == torture.Wiped:
			forgets = append(forgets, linear.Span{From: l.First, To: l.Last})
		case l.Kind == torture.Fault && slices.Contains([]string{torture.Failover, torture.Replaced, torture.Stepped},
			l.Fault):
			failovers = append(failovers, linear.Span{From: l.First, To: l.Last + 2*int64(rules.TTL)})
		}
	}
	r.Linearizable = true
	var mu sync.Mutex
	var all sync.WaitGroup
	turns := make(chan struct{}, 2)
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		ops := byName[name]
		first := slices.MinFunc(ops, func(a, b torture.Op) int { return int(a.Call - b.Call) }).Call
		last := slices.MaxFunc(ops, func(a, b torture.Op) int { return int(a.Return - b.Return) }).Return
		if slices.ContainsFunc(failovers, func(s linear.Span) bool { return s.From <= last && first <= s.To }) {
			r.LockExcused++ // no asynchronous replication is linearizable
			continue
		}
		r.LockNames++
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			if v := linear.Check(ops, clientTTL, forgets, patience); v != "ok" {
				mu.Lock()
				defer mu.Unlock()
				if v == "unknown" { // patience was too short; not a violation
					r.LockUndecided++
				} else {
					r.Linearizable = false
				}
				if len(examples) < 5 {
					examples = append(examples, fmt.Sprintf("%s: %s (%d calls)", name, v, len(ops)))
				}
			}
		})
	}
	all.Wait()
	if r.LockNames == 0 {
		r.TooWeak = append(r.TooWeak, "lock_histories")
	}
	if r.LockUndecided > 0 {
		r.TooWeak = append(r.TooWeak, "lock_histories_undecided")
	}
	return examples
}

// underWay is how long a request may be in flight although no fault holds it up.
const underWay = 2 * time.Second

// carriedOut returns a function that says until when a call with an unknown result may be executed:
// a proxy or a store that was paused delivers its data later.
func carriedOut(lines []torture.Line) func(torture.Op) int64 {
	var faults []torture.Line
	for _, l := range lines {
		if l.Kind == torture.Fault && (l.Target == "store" || strings.HasPrefix(l.Target, "clients-")) {
			faults = append(faults, l)
		}
	}
	slices.SortFunc(faults, func(a, b torture.Line) int { return cmp.Compare(a.First, b.First) })
	return func(op torture.Op) int64 {
		until := op.Return + int64(underWay)
		for _, f := range faults {
			its := f.Target == "store" || f.Target == fmt.Sprint("clients-", op.Client/clientsPerDoor)
			if its && f.Last >= op.Call && f.First <= until {
				until = max(until, f.Last+int64(underWay))
			}
		}
		return until
	}
}

// sum returns the combined report of all stores.
func sum(all []report) report {
	if len(all) == 1 {
		return all[0]
	}
	total := report{Linearizable: true, NReachedShare: 1, RateUsed: 1, FaultKinds: map[string]int{}}
	var names []string
	for _, r := range all {
		names = append(names, r.Store)
		total.Seed, total.Hosts = r.Seed, r.Hosts
		total.Seconds += r.Seconds
		total.Lives += r.Lives
		total.Runs += r.Runs
		total.Terms += r.Terms
		total.Degraded += r.Degraded
		total.DegradedMost = max(total.DegradedMost, r.DegradedMost)
		total.LeasesLost += r.LeasesLost
		total.Faults += r.Faults
		for k, n := range r.FaultKinds {
			total.FaultKinds[k] += n
		}
		total.OverLimit += r.OverLimit
		total.SameSlot += r.SameSlot
		total.FenceRegressions += r.FenceRegressions
		total.StartAfterLost += r.StartAfterLost
		total.NotTold += r.NotTold
		total.OverTick += r.OverTick
		total.OverRate += r.OverRate
		total.Rated += r.Rated
		total.RateWindows += r.RateWindows
		total.RateUsed = min(total.RateUsed, r.RateUsed)
		total.OverBound += r.OverBound
		total.Ticks += r.Ticks
		total.Unaccounted += r.Unaccounted
		total.Leaked += r.Leaked
		total.Stuck += r.Stuck
		total.Late += r.Late
		total.Silent += r.Silent
		total.Warnings += r.Warnings
		total.WarnedTwice += r.WarnedTwice
		total.LostByRegistry += r.LostByRegistry
		total.LostToSlowness += r.LostToSlowness
		total.Blind += r.Blind
		total.NReachedShare = min(total.NReachedShare, r.NReachedShare)
		total.Declared.OverLimit += r.Declared.OverLimit
		total.Declared.SameSlot += r.Declared.SameSlot
		total.Declared.FenceRegressions += r.Declared.FenceRegressions
		total.Declared.OverRate += r.Declared.OverRate
		total.Declared.Most = max(total.Declared.Most, r.Declared.Most)
		total.Linearizable = total.Linearizable && r.Linearizable
		total.LockOps += r.LockOps
		total.LockUnknown += r.LockUnknown
		total.LockNames += r.LockNames
		total.LockExcused += r.LockExcused
		total.LockUndecided += r.LockUndecided
		for _, b := range r.Broken {
			total.Broken = append(total.Broken, r.Store+": "+b)
		}
		for _, w := range r.TooWeak {
			total.TooWeak = append(total.TooWeak, r.Store+": "+w)
		}
	}
	total.Store = strings.Join(names, ",")
	return total
}
