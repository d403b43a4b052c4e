package timer

import (
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Status and a scrape first list the timers, and then read them one by one. A timer that is removed
// in between, or whose last run ends in between, is not shown.
//
// Fails when either of them does not check again: the timer is then shown as removed, without runs.
func TestTimerThatEndsWhileTheyAreListed(t *testing.T) {
	s, err := New(Config{Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()},
		Timer{Name: "a", Run: nothing})
	if err != nil {
		t.Fatal(err)
	}
	s.registry.begin(func() { s.runner.base = t.Context() })
	set := s.registry.get("a")
	shown := func() (inStatus, inScrape bool) {
		_, inStatus = s.statusOf(set)
		_, inScrape = s.metrics.look(set, &levels{})
		return inStatus, inScrape
	}
	s.registry.enter(set, 1)
	r := s.runner.startRun(tick{s: set}, nil, nil, false)
	s.registry.mu.Lock()
	s.registry.remove("a")
	s.registry.mu.Unlock()
	if inStatus, inScrape := shown(); !inStatus || !inScrape {
		t.Errorf("its run is in progress: in Status %t, in a scrape %t", inStatus, inScrape)
	}
	s.runner.finish(set, r, OutcomeOK, nil)
	if inStatus, inScrape := shown(); inStatus || inScrape {
		t.Errorf("its run has ended: in Status %t, in a scrape %t", inStatus, inScrape)
	}
}
