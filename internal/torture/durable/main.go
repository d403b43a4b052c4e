//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/tickslot/tickslot/internal/torture"
	"github.com/tickslot/tickslot/internal/torture/nemesis"
	"github.com/tickslot/tickslot/internal/torture/owners"
)

// What a torture must at least do to tell anything, for each minute of it.
const (
	leastRuns      = 5000
	leastFaults    = 12
	leastReclaimed = 5
	leastTimed     = 2
)

type report struct {
	Store   string  `json:"store"`
	Seed    uint64  `json:"seed"`
	Seconds float64 `json:"seconds"`
	Workers int     `json:"workers"`
	Lives   int     `json:"processes"`
	owners.Figures
	Faults     int            `json:"faults"`
	FaultKinds map[string]int `json:"fault_kinds"`
	Broken     []string       `json:"broken,omitempty"`
	TooWeak    []string       `json:"too_weak,omitempty"`
}

func (r report) ok() bool { return len(r.Broken) == 0 && len(r.TooWeak) == 0 }

func main() {
	if text := os.Getenv(nemesis.SpecEnv); text != "" {
		if err := runRole(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	kinds := flag.String("store", "postgres", "postgres, pgbouncer, sqlite; several with commas, one after the other")
	length := flag.Duration("for", 4*time.Minute, "how long, all stores together")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the choice of faults")
	lease := flag.Duration("lease", 3*time.Second, "of the workers; all else is as quick")
	show := flag.Bool("plan", false, "print what is to be done, and do nothing")
	keep := flag.String("logs", "", "the `FOLDER` for the logs (default: one that is removed if all was well)")
	flag.Parse()
	stores := strings.Split(*kinds, ",")
	each := *length / time.Duration(len(stores))
	if *show {
		for _, kind := range stores {
			fmt.Println(kind)
			for _, f := range plan(kind, *seed, each, *lease) {
				fmt.Println(f)
			}
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	dir, err := folder(*keep)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	fmt.Fprintf(os.Stderr, "torture: -store %s -for %v -seed %d, logs in %s\n", *kinds, *length, *seed, dir)
	well := true
	for _, kind := range stores {
		r := run(ctx, kind, dir, *seed, each, Timing{*lease})
		r.demand(each)
		well = well && r.ok()
		text, err := json.Marshal(r)
		if err != nil {
			panic(err)
		}
		fmt.Println(string(text))
	}
	if !well {
		fmt.Fprintf(os.Stderr, "torture: broken, or too weak to tell; the logs are in %s\n", dir)
		os.Exit(1)
	}
	if *keep == "" {
		_ = os.RemoveAll(dir)
	}
}

func folder(keep string) (string, error) {
	if keep == "" {
		return os.MkdirTemp("", "tickslot-torture-")
	}
	return keep, os.MkdirAll(keep, 0o755)
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
	case "worker":
		return runWorker(spec, log)
	case "clients":
		return runClients(spec, log)
	default:
		return runWriter(spec)
	}
}

// run tortures one store, for so long and until all runs have ended.
func run(ctx context.Context, kind, dir string, seed uint64, length time.Duration,
	timing Timing) (r report) {
	r = report{Store: kind, Seed: seed, Workers: hostsOf(kind)}
	began := time.Now()
	err := func() error {
		t, err := newTormentor(kind, dir, timing)
		if t != nil {
			defer t.close()
		}
		if err != nil {
			return err
		}
		err = t.torment(ctx, plan(kind, seed, length, timing.Lease), length)
		err = errors.Join(append(t.broken, err, t.end())...)
		r.FaultKinds = t.faults
		for _, n := range t.faults {
			r.Faults += n
		}
		for _, m := range t.members {
			r.Lives += m.lives
		}
		lines, unread := torture.ReadLogs(t.dir)
		r.Figures = owners.Examine(lines, timing.rules())
		return errors.Join(err, unread)
	}()
	r.Seconds = time.Since(began).Seconds()
	if err != nil {
		r.Broken = append(r.Broken, err.Error())
	}
	if n := r.Violations(); n > 0 {
		r.Broken = append(r.Broken, fmt.Sprintf("%d violations", n))
	}
	return r
}

// demand notes what there was too little of.
func (r *report) demand(length time.Duration) {
	for what, weak := range map[string]bool{
		"runs":           float64(r.Runs) < leastRuns*length.Minutes(),
		"faults":         float64(r.Faults) < leastFaults*length.Minutes(),
		"reclaimed":      float64(r.Reclaimed) < leastReclaimed*length.Minutes(),
		"reclaims_timed": float64(r.Timed) < leastTimed*length.Minutes(),
	} {
		if weak {
			r.TooWeak = append(r.TooWeak, what)
		}
	}
}
