package notify_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/internal/notify"
)

// Hooks are called in the order of the events, one at a time, and afterwards no goroutine is left.
//
// Fails when Put calls a hook itself or starts a goroutine for each.
func TestEventsArriveInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q notify.Queue
		var got []int // without a mutex, so that the race detector notices concurrent hooks
		for range 3 {
			for i := range 100 {
				if !q.Put("a", func() { got = append(got, i); runtime.Gosched() }) {
					t.Fatal("dropped")
				}
			}
			synctest.Wait()
		}
		if len(got) != 300 || !slices.IsSorted(got[:100]) || !slices.IsSorted(got[200:]) {
			t.Errorf("%d events: %v", len(got), got)
		}
		if hook := q.Close(time.Second); hook != "" || q.Dropped() != 0 {
			t.Errorf("%q is stuck, %d dropped", hook, q.Dropped())
		}
		if q.Put("a", func() { t.Error("called after Close") }) || q.Dropped() != 1 {
			t.Error("it took an event after Close")
		}
	})
}

// A hook that panics or calls runtime.Goexit causes the loss of no other event. A panic is
// reported.
//
// Fails when call does not recover, or when deliver ignores over.
func TestHookThatPanicsOrExits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []any
		q := notify.Queue{Panicked: func(hook string, value any, stack []byte) {
			if len(stack) == 0 {
				t.Error("no stack")
			}
			told = append(told, hook, value)
		}}
		called := 0
		q.Put("panics", func() { panic("oh") })
		q.Put("exits", runtime.Goexit)
		q.Put("last", func() { called++ })
		if hook := q.Close(time.Second); hook != "" || called != 1 || !slices.Equal(told, []any{"panics", "oh"}) {
			t.Errorf("%q is stuck, the last was called %d times, told %v", hook, called, told)
		}
		var silent notify.Queue // Panicked is not set
		silent.Put("panics", func() { panic("oh") })
		if hook := silent.Close(time.Second); hook != "" {
			t.Errorf("%q is stuck", hook)
		}
	})
}

// While a hook blocks, events wait up to the limit, and further ones are dropped and counted. No
// caller of Put waits.
//
// Fails when Put waits for space, or when the queue is unbounded.
func TestEventsBeyondTheBoundAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q notify.Queue
		block, called := make(chan struct{}), 0
		q.Put("blocks", func() { <-block })
		synctest.Wait()
		for range notify.MaxWaiting + 7 {
			q.Put("more", func() { called++ })
		}
		if q.Dropped() != 7 {
			t.Errorf("%d dropped, want 7", q.Dropped())
		}
		close(block)
		synctest.Wait()
		if called != notify.MaxWaiting {
			t.Errorf("%d arrived, want %d", called, notify.MaxWaiting)
		}
	})
}

// Close delivers the waiting events for up to its timeout and drops the remaining ones. It waits
// for a call that has just begun, but no longer than the timeout for a call that never returns.
//
// Fails when Close waits forever, drops immediately, or names a hook that is only slow.
func TestCloseIsBounded(t *testing.T) {
	const timeout = 5 * time.Second
	for name, c := range map[string]struct {
		call            time.Duration // duration of each hook
		called, dropped int           // out of ten events
		took            time.Duration
		stuck           string
	}{
		"fast":  {call: 0, called: 10},
		"slow":  {call: 2 * time.Second, called: 3, dropped: 7, took: 6 * time.Second},
		"stuck": {call: 24 * time.Hour, dropped: 9, took: timeout, stuck: "slow"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var q notify.Queue
				var mu sync.Mutex
				called := 0
				for range 10 {
					q.Put("slow", func() { time.Sleep(c.call); mu.Lock(); defer mu.Unlock(); called++ })
				}
				began := time.Now()
				stuck := q.Close(timeout)
				took := time.Since(began)
				mu.Lock()
				if stuck != c.stuck || called != c.called || took != c.took ||
					q.Dropped() != uint64(c.dropped) {
					t.Errorf("%d called and %d dropped after %v, %q is stuck; want %+v", called, q.Dropped(), took,
						stuck, c)
				}
				mu.Unlock()
				time.Sleep(c.call) // the abandoned call ends too, and its goroutine with it
			})
		})
	}
}

// Two callers of Close wait for the same end. A hook that calls Close does not wait for itself
// forever.
//
// Fails when the second caller replaces the first one's channel.
func TestCloseTwiceAndFromAHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q notify.Queue
		var inside string
		q.Put("closes", func() { inside = q.Close(time.Second) })
		synctest.Wait()
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if hook := q.Close(10 * time.Second); hook != "" {
					t.Errorf("%q is stuck", hook)
				}
			})
		}
		both.Wait()
		if inside != "closes" {
			t.Errorf("the hook was told that %q is stuck", inside)
		}
	})
}

// If the same line is logged continuously, ten per minute appear, and the next one states how many
// were left out.
//
// Fails when a receiver that is down fills the log, or when the omitted lines are not counted.
func TestLinesOfOneKindAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := notify.NewReporter("p", slog.New(slog.NewTextHandler(&log, nil)))
		for range 25 {
			r.LogSome(slog.LevelWarn, "orders", "it failed")
		}
		r.LogSome(slog.LevelWarn, "orders", "another line")
		r.LogSome(slog.LevelWarn, "mails", "it failed", "of", "mails")
		for i := range 5000 { // old subjects are forgotten
			r.LogSome(slog.LevelWarn, fmt.Sprint(i), "many")
		}
		time.Sleep(time.Minute)
		r.LogSome(slog.LevelWarn, "orders", "it failed")
		r.Close(time.Second)
		synctest.Wait()
		if text := log.String(); strings.Count(text, "it failed") != 12 || strings.Count(text, "left_out=15") != 1 ||
			!strings.Contains(text, "another line") || !strings.Contains(text, "of=mails") ||
			strings.Count(text, "many") > 1010 {
			t.Error(text)
		}
	})
}
