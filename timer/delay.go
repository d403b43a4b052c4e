package timer

import (
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/schedule"
)

const (
	// maxDelay bounds Delay.ByTimer and Delay.ByHost.
	maxDelay = 24 * time.Hour
	// maxJitter bounds Delay.Jitter, so that ticks keep their order.
	maxJitter = 0.5
)

// standBackStep is how much longer a host stands back than the one that ran a tick earlier,
// maxStandBack the most.
const (
	standBackStep = 4 * time.Millisecond
	maxStandBack  = 100 * time.Millisecond
)

// spread is the fixed part of a timer's delay on this host.
func (e *entry) spread(host dlock.Holder) (d time.Duration) {
	if e.timer.Delay.ByTimer > 0 {
		d = time.Duration(hashed(e.timer.Name, "") % uint64(e.timer.Delay.ByTimer))
	}
	if e.timer.Delay.ByHost > 0 {
		d += time.Duration(hashed(e.timer.Name, host.Host) % uint64(e.timer.Delay.ByHost))
	}
	return d.Truncate(time.Microsecond)
}

// jitter is the part of the delay that differs from tick to tick; it is the same on every host.
// Called without mu.
func (e *entry) jitter(tick time.Time) time.Duration {
	if e.timer.Delay.Jitter == 0 {
		return 0
	}
	next, err := schedule.Next(e.timer.Schedule, tick)
	if err != nil || next.IsZero() {
		return 0
	}
	chance := rand.New(rand.NewPCG(hashed(e.timer.Name, ""), uint64(tick.UnixMicro()))).Float64()
	return time.Duration(chance * e.timer.Delay.Jitter * float64(next.Sub(tick))).Truncate(time.Microsecond)
}

// hashed is the same in every process. FNV alone leaves names that differ in their last letter
// close to each other (by 2^40, which is 18 minutes of a day), so its bits are mixed, as
// MurmurHash3 does in the end.
func hashed(a, b string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(a))
	h.Write([]byte{0})
	h.Write([]byte(b))
	x := h.Sum64()
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// standBack has a tick wait a little if this host ran one of the latest, and reports whether it
// does. Called with mu held.
func (s *Scheduler) standBack(e *entry, t dueTick) bool {
	if !e.timer.LeastRecentFirst || t.stood || !e.shared() || s.store.isOpen(e) {
		return false
	}
	since, ran := s.ledger.sinceRun(&e.state.record)
	if !ran {
		return false
	}
	hosts := max(1, s.store.hostsSeen())
	rank := hosts - int(min(since, uint64(hosts))) // 0: it has been this host's turn for long
	if rank <= 0 {
		return false
	}
	step := min(standBackStep, min(maxStandBack, e.clock.interval()/4)/time.Duration(hosts))
	t.stood = true
	return s.planner.tryLater(time.Duration(rank)*step, e, t)
}
