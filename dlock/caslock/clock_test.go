package caslock_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock/caslock"
)

// From times in whole seconds, a host learns the server's clock to within 150 ms. The server's time
// always lies within the host's bounds, even if the host's clock runs faster or slower.
//
// Fails when a bound ignores the duration of a request or the drift between the clocks.
func TestClockOfSeconds(t *testing.T) {
	for _, drift := range []float64{-400e-6, 0, 400e-6} {
		synctest.Test(t, func(t *testing.T) {
			clock := caslock.Clock{MaxSkew: -1}
			began := time.Now()
			server := func() time.Time { // 7.3 s ahead, at a different speed
				passed := time.Since(began)
				return began.Add(passed + time.Duration(drift*float64(passed)) + 7300*time.Millisecond)
			}
			for i := range 200 {
				sent := time.Now()
				time.Sleep(rand.N(10 * time.Millisecond))
				stamp := server().Truncate(time.Second)
				time.Sleep(rand.N(10 * time.Millisecond))
				clock.Observe(sent, time.Now(), stamp, time.Second)
				time.Sleep(rand.N(300 * time.Millisecond))
				b, ok := clock.Now()
				if now := server(); !ok || now.Before(b.From) || now.After(b.Until) {
					t.Fatalf("after %d answers: %v is not within %v and %v", i+1, now, b.From, b.Until)
				}
				if width := b.Until.Sub(b.From); i > 100 && width > 150*time.Millisecond {
					t.Fatalf("after %d answers it is known to %v", i+1, width)
				}
			}
			if n := clock.Restarts(); n != 0 {
				t.Errorf("%d answers contradicted those before them", n)
			}
			time.Sleep(2 * time.Minute)
			if _, ok := clock.Now(); ok {
				t.Error("bounds of two minutes ago count")
			}
		})
	}
}

// If the server's clock is set, the next answer reveals it.
func TestClockThatIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var clock caslock.Clock
		for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} {
			now := time.Now()
			clock.Observe(now, now, now.Add(ahead), time.Millisecond)
			b, ok := clock.Now()
			if at := now.Add(ahead); !ok || at.Before(b.From) || at.After(b.Until) {
				t.Errorf("%v is not within %v and %v", at, b.From, b.Until)
			}
		}
		if n := clock.Restarts(); n != 2 {
			t.Errorf("%d restarts: must be 2", n)
		}
	})
}
