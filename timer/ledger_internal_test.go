package timer

import (
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// In a record, every due tick is at any time either counted or still being tried.
//
// Fails when ledger.missed counts ticks and skips in two steps, or when ledger.began counts a
// triggered run.
func TestLedgerAccountsForEveryTick(t *testing.T) {
	l, s := &ledger{metered: true, events: newEvents(Config{}, newLineLog(slog.New(slog.DiscardHandler)))},
		inForce(&settings{})
	e := s.entry
	began := func(run *Run) {
		e.mu.Lock()
		defer e.mu.Unlock()
		l.began(&e.record, run)
	}
	const ticks = 1000
	var all sync.WaitGroup
	all.Go(func() {
		for i := range int64(ticks) {
			at := time.UnixMicro(1 + 10*i)
			l.missed(s, 9, at, at.Add(9*time.Microsecond))
			l.due(e)
			run := &Run{tick: at.Add(9 * time.Microsecond).UnixMicro(), startedAt: at}
			if i%2 == 0 {
				l.skip(s, run.tick, ReasonFull, nil)
				continue
			}
			began(run)
			began(&Run{startedAt: at})
			e.mu.Lock()
			l.ended(&e.record, run, OutcomeFailed, time.Second, false, errors.New("failed"))
			e.mu.Unlock()
		}
	})
	for done := false; !done; {
		var st TimerStatus
		e.mu.Lock()
		e.record.fill(&st, dlock.Holder{})
		e.mu.Unlock()
		var skipped uint64
		for _, n := range st.Skipped {
			skipped += n
		}
		if left := st.Ticks - st.Started - skipped; left > 1 {
			t.Fatalf("%d ticks, %d started, skipped %v", st.Ticks, st.Started, st.Skipped)
		}
		done = st.Ticks == 10*ticks
	}
	all.Wait()
	r := &e.record
	if r.started != ticks/2 || r.skipped[ReasonMissed] != 9*ticks || r.skipped[ReasonFull] != ticks/2 ||
		len(r.history.decisions) != historyLen {
		t.Errorf("started %d, skipped %v, %d remembered", r.started, r.skipped, len(r.history.decisions))
	}
	if c := r.tally; c.started != ticks/2 || c.runs.of(string(OutcomeFailed)) != ticks/2 ||
		c.took.count() != ticks/2 || c.skipped.of(string(ReasonMissed)) != 9*ticks || r.lastErr == nil {
		t.Errorf("tally %+v, last error %v", r.tally, r.lastErr)
	}
}
