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

// spread returns the fixed part of a timer's delay on this host.
func (s *settings) spread(host dlock.Holder) (d time.Duration) {
	if s.timer.Delay.ByTimer > 0 {
		d = time.Duration(hashed(s.timer.Name, "") % uint64(s.timer.Delay.ByTimer))
	}
	if s.timer.Delay.ByHost > 0 {
		d += time.Duration(hashed(s.timer.Name, host.Host) % uint64(s.timer.Delay.ByHost))
	}
	return d.Truncate(time.Microsecond)
}

// jitter returns the part of the delay that differs from tick to tick; it is the same on every
// host. It asks the schedule, so it is called without a mutex.
func (s *settings) jitter(tick time.Time) time.Duration {
	if s.timer.Delay.Jitter == 0 {
		return 0
	}
	next, err := schedule.Next(s.timer.Schedule, tick)
	if err != nil || next.IsZero() {
		return 0
	}
	chance := rand.New(rand.NewPCG(hashed(s.timer.Name, ""), uint64(tick.UnixMicro()))).Float64()
	return time.Duration(chance * s.timer.Delay.Jitter * float64(next.Sub(tick))).Truncate(time.Microsecond)
}

// hashed returns a hash that is the same in every process. With FNV alone, names that differ only
// in their last letter would get hashes close to each other (2^40 apart, which is 18 minutes of a
// day), so the bits are mixed as in the last step of MurmurHash3.
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
