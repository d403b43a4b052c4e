package timer

import (
	"testing"
	"time"
)

// What becomes of a tick that may not start now: it waits, or it is skipped.
//
// Fails when decide gives another answer.
func TestDecide(t *testing.T) {
	full := func(change func(*refused)) refused {
		r := refused{why: ReasonFull, latest: true, present: true, onFull: FullWait, inLine: true, waited: time.Minute,
			maxWait: time.Hour, again: 20, next: 30}
		change(&r)
		return r
	}
	for what, c := range map[string]struct {
		refused
		want waitsFor
	}{
		"every slot is held":              {full(func(*refused) {}), forRun},
		"MaxPerHost runs go on":           {full(func(r *refused) { r.why = ReasonHostFull }), forRun},
		"a shared limit is full":          {full(func(r *refused) { r.why = ReasonLimitFull }), forRun},
		"FullSkip":                        {full(func(r *refused) { r.onFull = FullSkip }), forNothing},
		"it has waited for MaxWait":       {full(func(r *refused) { r.waited = time.Hour }), forNothing},
		"a later tick has come due":       {full(func(r *refused) { r.latest = false }), forNothing},
		"full, and the timer was updated": {full(func(r *refused) { r.present = false }), forTime},
		"FullSkip, and the timer was updated": {
			full(func(r *refused) { r.onFull, r.present = FullSkip, false }), forNothing},
		"a run with a fixed delay goes on": {full(func(r *refused) { r.fixed = true }), forNothing},
		"a fixed delay, and a shared limit is full": {
			full(func(r *refused) { r.fixed, r.why = true, ReasonLimitFull }), forRun},

		"MaxRuns runs go on": {full(func(r *refused) { r.why = ReasonMaxRuns }), forPlace},
		"MaxRuns, without FullWait": {
			full(func(r *refused) { r.why, r.onFull = ReasonMaxRuns, FullSkip }), forPlace},
		"MaxRunsSkip":         {full(func(r *refused) { r.why, r.inLine = ReasonMaxRuns, false }), forNothing},
		"MaxRuns for MaxWait": {full(func(r *refused) { r.why, r.waited = ReasonMaxRuns, time.Hour }), forNothing},

		"updated meanwhile": {full(func(r *refused) { r.why, r.present = ReasonDraining, false }), forTime},
		"the host drains":   {full(func(r *refused) { r.why = ReasonDraining }), forNothing},

		"quarantine": {full(func(r *refused) { r.why = ReasonQuarantine }), forTime},
		"quarantine until after the next tick": {
			full(func(r *refused) { r.why, r.next = ReasonQuarantine, 20 }), forNothing},
		"quarantine, and no tick comes": {
			full(func(r *refused) { r.why, r.next = ReasonQuarantine, 0 }), forTime},
		"quarantine, and a later tick has come due": {
			full(func(r *refused) { r.why, r.latest = ReasonQuarantine, false }), forNothing},

		"another host has the tick": {full(func(r *refused) { r.why = ReasonTickTaken }), forNothing},
		"it is paused":              {full(func(r *refused) { r.why = ReasonPaused }), forNothing},
		"it is paused, and updated": {full(func(r *refused) { r.why, r.present = ReasonPaused, false }), forNothing},
		"the store is down":         {full(func(r *refused) { r.why = ReasonStoreDown }), forNothing},
	} {
		if got := decide(c.refused); got != c.want {
			t.Errorf("%s: it waits for %v, want %v", what, got, c.want)
		}
	}
}
