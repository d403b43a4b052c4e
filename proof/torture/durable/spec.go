//go:build linux

package main

import (
	"time"

	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/proof/torture/nemesis"
	"github.com/tickslot/tickslot/proof/torture/owners"
)

// A Timing sets the speed of a torture.
type Timing struct{ Lease time.Duration }

// Poll returns a worker's poll interval.
func (t Timing) Poll() time.Duration { return t.Lease / 3 }

// Call returns the timeout of a database call.
func (t Timing) Call() time.Duration { return t.Lease / 3 }

const (
	maxRuns   = 12
	maxActive = 24
)

// A work is a handler and the maximum number of its waiting runs.
type work struct {
	name    string
	options durable.HandlerOptions
	backlog int64
	batch   int // number of runs that a client triggers at a time
}

var works = []work{
	// Does nothing, so there are many.
	{"noop", durable.HandlerOptions{MaxConcurrency: 18}, 600, 60},
	// Works for a while, up to two leases, and may ignore the end of its context.
	{"long", durable.HandlerOptions{MaxConcurrency: 8, Retry: retry}, 8, 3},
	// Fails more often than it succeeds: with an error, a panic, or a request for a later retry.
	{"flaky", durable.HandlerOptions{MaxConcurrency: 3, Retry: retry}, 20, 5},
	// Gives up on purpose.
	{"doomed", durable.HandlerOptions{MaxConcurrency: 2, Retry: retry}, 20, 3},
	// Handles the ticks of schedules.
	{"ticking", durable.HandlerOptions{MaxConcurrency: 5, Retry: retry}, 0, 0},
}

var retry = durable.Retry{FirstWait: 50 * time.Millisecond, MaxWait: 500 * time.Millisecond}

// A cadence is a schedule of the handler ticking.
type cadence struct {
	name    string
	period  time.Duration
	catchUp durable.CatchUp
}

var cadences = []cadence{
	{"coalesced", time.Second, durable.CatchUp{}},
	{"backfilled", 1500 * time.Millisecond, durable.CatchUp{Policy: durable.CatchUpBackfill, Max: 1000}},
	{"bounded", 700 * time.Millisecond, durable.CatchUp{Policy: durable.CatchUpBackfill, Max: 3}},
	{"skipped", 500 * time.Millisecond, durable.CatchUp{Policy: durable.CatchUpSkip}},
}

// rules returns the promises.
func (t Timing) rules() owners.Rules {
	r := owners.Rules{Limits: map[string]int{}, MaxActive: maxActive, MaxRuns: maxRuns, Lease: t.Lease,
		// The jitter of a poll, two looks of the watch, and a call.
		Within:   time.Duration(float64(t.Poll())*(1+durable.DefaultPollJitter)) + 2*nemesis.LookEvery + t.Call()/2,
		Recovers: 2 * t.Call(), TicksWithin: 2*t.Poll() + t.Call()}
	for _, w := range works {
		r.Limits[w.name] = w.options.MaxConcurrency
	}
	return r
}
