package timer

import (
	"log/slog"
	"testing"

	"github.com/tickslot/tickslot/dlock/memlock"
)

// A timer with a limit scans the timers that share the limit only while a run of one of them
// continues without the store. A scan for every tick would take most of the time of a host with
// many timers. The count always returns to 0, whatever settings the runs have.
//
// Fails when countDegraded does not count runs for the limits, or when runner.attach does not
// subtract them.
func TestRunsWithoutTheStoreAreCountedByLimit(t *testing.T) {
	s, err := New(Config{Store: memlock.New(), Logger: slog.New(slog.DiscardHandler),
		Limits: []Limit{{Name: "smtp", Size: 3}, {Name: "disk", Size: 3}}},
		Timer{Name: "mail", Limits: []string{"smtp"}, Run: nothing},
		Timer{Name: "dump", Limits: []string{"disk"}, Run: nothing},
		Timer{Name: "report", Limits: []string{"smtp", "disk"}, Run: nothing})
	if err != nil {
		t.Fatal(err)
	}
	s.registry.begin(func() { s.runner.base = t.Context(); s.store.begin(t.Context()) })
	mail, report := s.registry.get("mail"), s.registry.get("report")
	count := func(smtp, disk int32) {
		t.Helper()
		if a, b := s.limits.byName["smtp"].degraded.Load(), s.limits.byName["disk"].degraded.Load(); a != smtp ||
			b != disk {
			t.Errorf("%d and %d, want %d and %d", a, b, smtp, disk)
		}
	}
	begin := func(set *settings) *Run {
		if why := s.registry.enter(set, 1); why != "" {
			t.Fatal(why)
		}
		if _, err := s.limits.enter(set, true); err != nil {
			t.Fatal(err)
		}
		return s.runner.startRun(tick{s: set}, nil, nil, true)
	}
	a, b := begin(mail), begin(report)
	count(2, 1)
	lease, err := s.session.Semaphore(report.entry.lockName, 1).With(report.locks()...).TryAcquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !s.runner.handOver(report, lease) {
		t.Error("the run got no slot")
	}
	count(1, 0)
	s.runner.finish(report, b, OutcomeOK, nil)
	count(1, 0)
	s.runner.finish(mail, a, OutcomeOK, nil)
	count(0, 0)
	if err := s.session.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
