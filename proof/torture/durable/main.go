//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/proof/torture"
	"github.com/tickslot/tickslot/proof/torture/nemesis"
	"github.com/tickslot/tickslot/proof/torture/owners"
)

// These are the least counts per minute for a meaningful torture.
const (
	leastRuns      = 5000
	leastFaults    = 12
	leastReclaimed = 5
	leastTimed     = 2
)

// mostExcused is the largest share of time that unanswered looks may excuse.
const mostExcused = 0.25

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
	nemesis.Program{Kinds: "postgres, pgbouncer, sqlite", Lease: 3 * time.Second, Role: runRole, Plan: plan,
		Run: func(ctx context.Context, kind, dir string, seed uint64, length, lease time.Duration) (any, bool) {
			r := run(ctx, kind, dir, seed, length, Timing{lease})
			r.demand(length)
			return r, r.ok()
		}}.Main()
}

// runRole runs the role of a child process.
func runRole(text string) error {
	var spec nemesis.Spec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return err
	}
	log, err := spec.OpenLog()
	if err != nil {
		return err
	}
	switch spec.Role {
	case "worker":
		return runWorker(spec, log)
	case "clients":
		return runClients(spec, log)
	default:
		return nemesis.RunWriter(spec)
	}
}

// run tortures one store for this long, and then until all runs have ended.
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
		err = errors.Join(err, t.end(), t.crew.Broken())
		r.FaultKinds, r.Faults = t.crew.Faults()
		r.Lives = t.crew.Lives()
		lines, unread := torture.ReadLogs(t.crew.Dir)
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

// demand records which counts are too small.
func (r *report) demand(length time.Duration) {
	for what, weak := range map[string]bool{
		"runs":           float64(r.Runs) < leastRuns*length.Minutes(),
		"faults":         float64(r.Faults) < leastFaults*length.Minutes(),
		"reclaimed":      float64(r.Reclaimed) < leastReclaimed*length.Minutes(),
		"reclaims_timed": float64(r.Timed) < leastTimed*length.Minutes(),
		"excused":        r.Excused > mostExcused,
		"forgotten":      r.FaultKinds[torture.Promoted] > 1 && r.Forgotten == 0,
	} {
		if weak {
			r.TooWeak = append(r.TooWeak, what)
		}
	}
}
