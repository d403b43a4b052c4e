package clustertimer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/clustertimer"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/timer"
)

// rude is an error that panics when its text is read.
type rude struct{}

func (rude) Error() string { panic("no") }

// Each ended run is recorded, whatever its error, and the user's own hook is called.
//
// Fails when the hook replaces the user's hook, or when a panic of the error's method is not
// recovered.
func TestHooksRecordRuns(t *testing.T) {
	t.Parallel()
	registry, err := cluster.New(cluster.Config{Store: cluster.NewMemoryStore()})
	if err != nil {
		t.Fatal(err)
	}
	called, skipped := 0, false
	hooks := clustertimer.Hooks(registry, timer.Hooks{RunEnded: func(timer.RunResult) { called++ },
		TickSkipped: func(timer.SkipInfo) { skipped = true }})
	for i, err := range []error{nil, errors.New("the disk is full"), rude{}} {
		run := timer.RunInfo{Timer: fmt.Sprint("report-", i), Holder: registry.Holder(), Slot: 2, Attempt: 3,
			StartedAt: time.Now().Add(-time.Minute), TriggeredBy: driver.Cause{By: "ann"}}
		hooks.RunEnded(timer.RunResult{RunInfo: run, Outcome: timer.OutcomeFailed, Took: time.Second, Err: err})
	}
	hooks.TickSkipped(timer.SkipInfo{})
	if called != 3 || !skipped {
		t.Errorf("the user's hooks: %d, %v", called, skipped)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := registry.Run(ctx); err != nil { // writes what is left
		t.Fatal(err)
	}
	snapshot, err := registry.Snapshot(t.Context())
	if err != nil || len(snapshot.Runs) != 3 {
		t.Fatal(snapshot.Runs, err)
	}
	texts := ""
	for _, r := range snapshot.Runs {
		texts += r.Err + "\n"
		if r.Succeeded() || !(&cluster.HistoryRun{Run: cluster.Run{Outcome: string(timer.OutcomeOK)}}).Succeeded() {
			t.Errorf("run %s: succeeded %v", r.Outcome, r.Succeeded())
		}
		if r.Holder != registry.Holder() || r.Slot != 2 || r.Attempts != 3 || r.By != "ann" || r.Took != time.Second ||
			r.Outcome != "error" || time.Since(r.EndedAt).Round(10*time.Second) != time.Minute {
			t.Errorf("%+v", r)
		}
	}
	if !strings.Contains(texts, "the disk is full") || !strings.Contains(texts, "clustertimer_test.rude") {
		t.Error(texts)
	}
}

// The stack of a handler that panicked is recorded, beginning with the handler. Other runs have
// none.
//
// Fails when the stack is left out, or begins with the calls that caught the panic.
func TestStacksOfPanicsAreRecorded(t *testing.T) {
	t.Parallel()
	registry, err := cluster.New(cluster.Config{Store: cluster.NewMemoryStore()})
	if err != nil {
		t.Fatal(err)
	}
	hooks := clustertimer.Hooks(registry, timer.Hooks{})
	for _, err := range []error{guard.Call("handler", func() error { panic("no feed") }), errors.New("no paper")} {
		hooks.RunEnded(timer.RunResult{RunInfo: timer.RunInfo{Timer: "feeds", StartedAt: time.Now()}, Err: err})
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := registry.Run(ctx); err != nil {
		t.Fatal(err)
	}
	runs, err := registry.Runs(t.Context(), "feeds")
	if err != nil || len(runs) != 2 {
		t.Fatal(runs, err)
	}
	for _, r := range runs {
		lines := strings.Split(r.Stack, "\n")
		switch panicked := strings.Contains(r.Err, "no feed"); {
		case !panicked && r.Stack != "":
			t.Errorf("a run that did not panic has the stack %s", r.Stack)
		case panicked && (len(lines) < 3 || !strings.HasPrefix(lines[0], "goroutine ") ||
			!strings.Contains(lines[1], "TestStacksOfPanicsAreRecorded")):
			t.Errorf("the stack is %s", r.Stack)
		}
	}
}
