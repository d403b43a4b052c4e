//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/proof/torture"
	"github.com/tickslot/tickslot/proof/torture/deliveries"
	"github.com/tickslot/tickslot/proof/torture/nemesis"
)

// These are the least counts per minute for a meaningful torture.
const (
	leastMessages = 600
	leastFaults   = 12
	leastDropped  = 5
)

// mostExcused is the largest share of time that unanswered looks may excuse.
const mostExcused = 0.25

type report struct {
	Store   string  `json:"store"`
	Seed    uint64  `json:"seed"`
	Seconds float64 `json:"seconds"`
	Lives   int     `json:"processes"`
	deliveries.Figures
	Faults     int            `json:"faults"`
	FaultKinds map[string]int `json:"fault_kinds"`
	Broken     []string       `json:"broken,omitempty"`
	TooWeak    []string       `json:"too_weak,omitempty"`
}

func (r report) ok() bool { return len(r.Broken) == 0 && len(r.TooWeak) == 0 }

func main() {
	nemesis.Program{Kinds: "postgres, pgbouncer, mariadb, sqlite", Lease: 3 * time.Second, Role: runRole, Plan: plan,
		Run: func(ctx context.Context, kind, dir string, seed uint64, length, lease time.Duration) (any, bool) {
			r := run(ctx, kind, dir, seed, length, failOversFor(length), Timing{lease})
			r.demand(length)
			return r, r.ok()
		}}.Main()
}

// runRole runs the role of a child process.
func runRole(text string) error {
	var spec Spec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return err
	}
	log, err := spec.OpenLog()
	if err != nil {
		return err
	}
	switch spec.Role {
	case "relay":
		return runRelay(spec, log)
	case "producer":
		return runProducer(spec, log)
	case "receiver":
		return runReceiver(spec, log)
	default:
		return nemesis.RunWriter(spec.Spec)
	}
}

// failOversFor returns how often a relay must take over in calm, for a torture of that length.
func failOversFor(length time.Duration) int { return max(1, int(length/(30*time.Second))) }

// run tortures one store for this long, then makes relays fail over, and waits until all messages
// are dispatched or dead.
func run(ctx context.Context, kind, dir string, seed uint64, length time.Duration, failOvers int, timing Timing) (
	r report) {
	r = report{Store: kind, Seed: seed}
	began := time.Now()
	err := func() error {
		t, err := newTormentor(kind, dir, timing)
		if t != nil {
			defer t.close()
		}
		if err != nil {
			return err
		}
		err = t.torment(ctx, plan(kind, seed, length, timing.TTL), length, failOvers)
		err = errors.Join(err, t.rows(), t.crew.Broken())
		r.FaultKinds, r.Faults = t.crew.Faults()
		r.Lives = t.crew.Lives()
		lines, unread := torture.ReadLogs(t.crew.Dir)
		r.Figures = deliveries.Examine(lines, timing.rules())
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

// demand records which counts are too small.
func (r *report) demand(length time.Duration) {
	for what, weak := range map[string]bool{
		"messages":         float64(r.Messages) < leastMessages*length.Minutes(),
		"faults":           float64(r.Faults) < leastFaults*length.Minutes(),
		"dropped":          float64(r.Dropped) < leastDropped*length.Minutes(),
		"rolled_back":      r.RolledBack == 0,
		"rejected":         r.Rejected == 0,
		"fail_overs_timed": r.Timed < failOversFor(length),
		"excused":          r.Excused > mostExcused,
		"forgotten":        r.FaultKinds[torture.Promoted] > 1 && r.Forgotten == 0,
	} {
		if weak {
			r.TooWeak = append(r.TooWeak, what)
		}
	}
}
