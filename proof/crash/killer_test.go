//go:build unix

package crash

import (
	"testing"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/outbox"
)

// A message kills each relay process that delivers it, together with messages of other keys. It
// becomes a dead letter after MaxCrashes recorded deaths and one death that could not be recorded.
// All other messages are delivered.
//
// Fails when it kills relays forever, or when more than one message is dead.
func TestMessageThatKillsItsProcess(t *testing.T) {
	t.Parallel()
	kinds := []string{"SQLite"}
	if testkit.Rounds(t, 1, 2) > 1 {
		kinds = append(kinds, "Postgres", "MariaDB")
	}
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			l, err := newLane(t, &matrix{}, placeOf(t, kind))
			if err != nil {
				t.Fatal(err)
			}
			if err := l.order(16); err != nil {
				t.Fatal(err)
			}
			const killer = 5 // not the first of its key
			const most = 20
			deaths := 0
			for ; deaths < most; deaths++ {
				p := job{Role: "relay", Place: l.app.place, URL: l.receiver.URL, Shards: 1, Killer: killer,
					Lifetime: time.Hour}.start(t)
				ended := make(chan struct{})
				go func() {
					for p.lines.Scan() {
					}
					close(ended)
				}()
				dead := false
				testkit.Eventually(t, testkit.Patience, "the relay has died, or delivered the rest", func() bool {
					select {
					case <-ended:
						return true
					default:
					}
					pending := 0
					err := l.app.db.QueryRow("SELECT count(*) FROM tickslot_outbox WHERE state = 'pending'").
						Scan(&pending)
					dead = err == nil && pending == 0
					return dead
				})
				if dead {
					break
				}
				_ = p.Wait()
				if err := l.expire(); err != nil {
					t.Fatal(err)
				}
			}
			if want := outbox.DefaultMaxCrashes + 1; deaths != want {
				t.Errorf("%d relays died, want %d", deaths, want)
			}
			dead, err := l.app.box.Messages(t.Context(), outbox.Filter{State: outbox.StateDead}, 100)
			if err != nil || len(dead) != 1 || dead[0].ID != outbox.NewID("order", killer, 0) {
				t.Errorf("dead: %+v, %v, want the one message", dead, err)
			}
		})
	}
}
