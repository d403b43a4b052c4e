package schedule

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"
)

const maxDuration = time.Duration(math.MaxInt64) // about 292 years

// For any anchor, offset and instant, Every has the ticks that big-integer arithmetic gives. Values
// that cannot be represented are refused.
//
// Fails when the distance between an instant and the anchor is computed as a Duration, which holds
// at most 292 years.
func TestEveryIsRightAtAnyDistance(t *testing.T) {
	t.Parallel()
	nanos := func(t time.Time) *big.Int {
		n := new(big.Int).Mul(big.NewInt(t.Unix()), big.NewInt(1e9))
		return n.Add(n, big.NewInt(int64(t.Nanosecond())))
	}
	duration := func() time.Duration { return time.Duration(rand.Int64() >> rand.IntN(62)) }
	checked := 0
	for range 20_000 {
		iv := Every(max(duration(), minPeriod))
		if rand.IntN(10) == 0 {
			iv = Every(maxDuration - time.Duration(rand.IntN(2e9)))
		}
		if rand.IntN(2) == 0 {
			iv = iv.From(time.Unix(rand.Int64N(14e9)-6e9, rand.Int64N(1e9)))
		}
		for range rand.IntN(3) {
			d := duration()
			if rand.IntN(2) == 0 {
				d = -d
			}
			iv = iv.Offset(d)
		}
		if iv.Check() != nil {
			continue
		}
		checked++
		at := time.Unix(rand.Int64N(300e9)-62e9, rand.Int64N(1e9)) // years 5 to 9500
		next := iv.Next(at)
		if !next.After(at) {
			t.Fatalf("%v: Next(%v) = %v", iv, at, next)
		}
		if begin := iv.begin(); iv.anchored && at.Before(begin) {
			if !next.Equal(begin) {
				t.Fatalf("%v: Next(%v) = %v, want its beginning", iv, at, next)
			}
			continue
		}
		period := big.NewInt(int64(iv.period))
		since := new(big.Int).Sub(nanos(next), nanos(iv.begin()))
		if new(big.Int).Mod(since, period).Sign() != 0 {
			t.Fatalf("%v: Next(%v) = %v, which is not on the grid", iv, at, next)
		}
		if next.Add(-iv.period).After(at) {
			t.Fatalf("%v: Next(%v) = %v, which is not the first", iv, at, next)
		}
	}
	if checked < 5000 {
		t.Errorf("only %d were no fault", checked)
	}
	for _, iv := range []Interval{
		Every(time.Hour).From(time.Unix(-1<<55, 0)), Every(time.Hour).From(time.Unix(1<<55, 0)),
		Every(time.Hour).From(time.Time{}),
		Every(time.Hour).Offset(maxDuration), Every(time.Hour).Offset(-maxDuration).Offset(-maxDuration),
		Every(time.Hour).Offset(maxDuration).Offset(maxDuration),
		Every(time.Hour).From(time.Unix(0, 0)).Offset(maxDuration),
		Every(time.Hour).From(time.Date(2199, 1, 1, 0, 0, 0, 0, time.UTC)).Offset(-maxDuration),
	} {
		if iv.Check() == nil {
			t.Errorf("%v is no fault", iv)
		}
	}
}
