package timer

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/tickslot/tickslot/internal/testkit"
)

// A host keeps no Run in memory after it has ended. Otherwise the Run would also keep the values of
// the context that the user passed to Scheduler.Run.
//
// Fails when entry.place leaves the first run in the array that runs used before it grew.
func TestRunsThatAreOverAreForgotten(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	s, err := New(Config{}, Timer{Name: "a", MaxConcurrency: 2,
		Run: func(context.Context) error { began <- struct{}{}; <-release; return nil }})
	if err != nil {
		t.Fatal(err)
	}
	s.start(t.Context())
	for range 2 {
		if _, err := s.Trigger(t.Context(), "a", TriggerOptions{}); err != nil {
			t.Fatal(err)
		}
		<-began
	}
	set := s.registry.get("a")
	set.entry.mu.Lock()
	var runs []weak.Pointer[Run]
	for _, r := range set.entry.runs {
		runs = append(runs, weak.Make(r))
	}
	set.entry.mu.Unlock()
	if len(runs) != 2 {
		t.Fatalf("%d runs", len(runs))
	}
	close(release)
	testkit.Eventually(t, testkit.Patience, "no run is in progress", func() bool { return !s.registry.busy() })
	for i, r := range runs {
		testkit.Eventually(t, 10*time.Second, fmt.Sprintf("run %d is collected", i), func() bool {
			runtime.GC()
			return r.Value() == nil
		})
	}
	runtime.KeepAlive(s)
}
