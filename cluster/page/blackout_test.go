package page_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/cluster/page/internal/readcache"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// A calendar is a blackout that somebody else keeps: it may not answer.
type calendar struct {
	still atomic.Bool
	asked chan struct{} // by the first who waits
	once  sync.Once
	end   chan struct{}
}

func (c *calendar) Until(t time.Time) time.Time {
	if c.still.Load() {
		c.once.Do(func() { close(c.asked) })
		<-c.end
	}
	return t.Add(time.Hour)
}

// Until a blackout has answered, every page is shown all the same, to everybody, and what other
// timers' blackouts say is on it.
//
// Fails when a blackout is asked with the mutex of the rows held, or waited for without an end, and
// when no other is asked after one that hangs.
func TestABlackoutThatHangsHoldsUpNoPage(t *testing.T) {
	t.Parallel()
	config := page.Config{Authorize: allow(operator)}
	f := newFleet(t, config)
	hung := &calendar{asked: make(chan struct{}), end: make(chan struct{})}
	every := func(name string, b schedule.Blackout) timer.Timer {
		return timer.Timer{Name: name, Schedule: schedule.Every(50 * time.Millisecond),
			Blackouts: []schedule.Blackout{b}, Run: func(context.Context) error { return nil }}
	}
	s, err := timer.New(timer.Config{Store: f.locks, Logger: slog.New(slog.DiscardHandler)}, every("a-hung", hung),
		every("b-well", &calendar{}))
	if err != nil {
		t.Fatal(err)
	}
	config.Registry, config.Timers, config.Logger = f.registry, s, slog.New(slog.DiscardHandler)
	if f.page, err = page.New(config); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	f.has("timers", "Blackout 2")
	hung.still.Store(true)
	<-hung.asked
	seen := func(target string) string {
		r := request("GET", target, "")
		r = r.WithContext(readcache.WithPatience(context.Background(), readcache.Patience)) // that of a viewer
		w := serve(f.page, r)
		if w.Code != http.StatusOK {
			t.Errorf("%s: %d: %s", target, w.Code, w.Body)
		}
		return w.Body.String()
	}
	testkit.Eventually(t, testkit.Patience, "the other is known, and this one is not", func() bool {
		return strings.Contains(seen("timers"), "Blackout 1<")
	})
	for _, target := range []string{"", "timers", "timer?name=a-hung", "hosts", "events"} {
		var viewers sync.WaitGroup
		for range 5 {
			viewers.Go(func() { seen(target) })
		}
		viewers.Wait()
	}
	close(hung.end)
	f.has("timers", "Blackout 2")
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
