package timer

import (
	"math"
	"testing"
	"time"
)

// A tick that may not start now waits or is skipped, according to decide.
//
// Fails when decide returns a different result.
func TestDecide(t *testing.T) {
	full := func(change func(*refused)) refused {
		r := refused{why: ReasonFull, latest: true, present: true, onFull: FullWait, queues: true, waited: time.Minute,
			maxWait: time.Hour, quarantine: 20 * time.Second, next: 30 * time.Second, pause: time.Second}
		change(&r)
		return r
	}
	for what, c := range map[string]struct {
		refused
		want waitsFor
		in   time.Duration
	}{
		"every slot is held":              {full(func(*refused) {}), forRun, time.Second},
		"MaxPerHost runs are in progress": {full(func(r *refused) { r.why = ReasonHostFull }), forRun, time.Second},
		"a shared limit is full":          {full(func(r *refused) { r.why = ReasonLimitFull }), forRun, time.Second},
		"FullSkip":                        {full(func(r *refused) { r.onFull = FullSkip }), forNothing, 0},
		"a run, for the rest of MaxWait": {
			full(func(r *refused) { r.waited = time.Hour - time.Millisecond }), forRun, time.Millisecond},
		"it has waited for MaxWait":       {full(func(r *refused) { r.waited = time.Hour }), forNothing, 0},
		"a later tick has come due":       {full(func(r *refused) { r.latest = false }), forNothing, 0},
		"full, and the timer was updated": {full(func(r *refused) { r.present = false }), forTime, 0},
		"FullSkip, and the timer was updated": {
			full(func(r *refused) { r.onFull, r.present = FullSkip, false }), forNothing, 0},
		"a run with a fixed delay is in progress": {full(func(r *refused) { r.fixed = true }), forNothing, 0},
		"a fixed delay, and a shared limit is full": {
			full(func(r *refused) { r.fixed, r.why = true, ReasonLimitFull }), forRun, time.Second},

		"MaxRuns runs are in progress": {full(func(r *refused) { r.why = ReasonMaxRuns }), forPlace, 59 * time.Minute},
		"MaxRuns, without FullWait": {
			full(func(r *refused) { r.why, r.onFull = ReasonMaxRuns, FullSkip }), forPlace, 59 * time.Minute},
		"MaxRunsSkip":         {full(func(r *refused) { r.why, r.queues = ReasonMaxRuns, false }), forNothing, 0},
		"MaxRuns for MaxWait": {full(func(r *refused) { r.why, r.waited = ReasonMaxRuns, time.Hour }), forNothing, 0},

		"updated meanwhile": {full(func(r *refused) { r.why, r.present = ReasonDraining, false }), forTime, 0},
		"the host drains":   {full(func(r *refused) { r.why = ReasonDraining }), forNothing, 0},

		"quarantine": {full(func(r *refused) { r.why = ReasonQuarantine }), forTime, 20 * time.Second},
		"quarantine until after the next tick": {
			full(func(r *refused) { r.why, r.next = ReasonQuarantine, 20*time.Second }), forNothing, 0},
		"quarantine, and no tick comes": {
			full(func(r *refused) { r.why, r.next = ReasonQuarantine, math.MaxInt64 }), forTime, 20 * time.Second},
		"quarantine, and a later tick has come due": {
			full(func(r *refused) { r.why, r.latest = ReasonQuarantine, false }), forNothing, 0},

		"another host has the tick": {full(func(r *refused) { r.why = ReasonTickTaken }), forNothing, 0},
		"it is paused":              {full(func(r *refused) { r.why = ReasonPaused }), forNothing, 0},
		"it is paused, and updated": {full(func(r *refused) { r.why, r.present = ReasonPaused, false }), forNothing, 0},
		"the store is down":         {full(func(r *refused) { r.why = ReasonStoreDown }), forNothing, 0},
	} {
		if got, in := decide(c.refused); got != c.want || in != c.in {
			t.Errorf("%s: it waits for %v, at most %v, want %v and %v", what, got, in, c.want, c.in)
		}
	}
}
