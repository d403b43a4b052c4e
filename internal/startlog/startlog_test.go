package startlog_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tickslot/tickslot/internal/startlog"
)

const second = int64(1_000_000)

// windows fails the test if a window of length per has more starts than the rate. starts must be
// sorted.
func windows(t *testing.T, starts []int64, rate int, per int64) {
	t.Helper()
	for i := rate; i < len(starts); i++ {
		if starts[i]-starts[i-rate] < per {
			t.Fatalf("%d starts within %d µs, from %d on: at most %d within %d", rate+1, starts[i]-starts[i-rate],
				starts[i-rate], rate, per)
		}
	}
}

// Starts happen whenever they are allowed: in bursts, evenly, and at random. No window has too
// many, and nearly all of the rate is used.
//
// Fails when a record counts from the start of its bucket, or when a start at the end of the window
// is forgotten.
func TestNoWindowHasMoreStartsThanTheRate(t *testing.T) {
	for _, rate := range []int{1, 2, 59, 60, 61, 100, 997, 5000} {
		for _, per := range []int64{1000, 7919, second, 60 * second} {
			for _, grain := range []int64{1, 1000} {
				if grain > per/1000 && grain > 1 {
					continue // the clock is too coarse for such a short window
				}
				var log startlog.Log
				var starts []int64
				began := rand.Int64N(1 << 50)
				now := began
				for len(starts) < 6*rate {
					if wait := log.Wait(now, rate, per); wait > 0 {
						again := log.Wait(now+wait, rate, per)
						if again != 0 || log.Wait(now+wait-1, rate, per) != 1 {
							t.Fatalf("rate %d per %d: a start is allowed in %d, then in %d more", rate, per, wait,
								again)
						}
						if now += wait; rand.IntN(3) == 0 { // late
							now += rand.Int64N(per/1000 + 1)
						}
						continue
					}
					log = log.Add(now-now%grain, rate, per, grain)
					starts = append(starts, now)
					if len(log) > 64 {
						t.Fatalf("%d records", len(log))
					}
					if len(starts) > 3*rate { // in bursts before, evenly from now on
						now += rand.Int64N(per/int64(rate) + 1)
					}
				}
				windows(t, starts, rate, per)
				if took := now - began; per >= second && took > 6*per*105/100+per/2 {
					t.Errorf("rate %d per %d: %d starts took %d: more than %d", rate, per, len(starts), took, 6*per)
				}
			}
		}
	}
}

// Hosts use different rates and window lengths. A host starts only while its own window contains
// fewer starts than its own rate.
//
// Fails when starts are forgotten because they are older than the asking host's window.
func TestHostsThatDisagreeKeepTheirOwn(t *testing.T) {
	type host struct {
		rate int
		per  int64
	}
	for _, hosts := range [][]host{{{10, second}, {100, 60 * second}}, {{100, second}, {1, second}},
		{{500, 60 * second}, {3, second}, {60, 7 * second}}} {
		var log startlog.Log
		var starts []int64
		now := int64(1 << 50)
		for range 20_000 {
			h := hosts[rand.IntN(len(hosts))]
			if log.Wait(now, h.rate, h.per) == 0 {
				within := 0
				for i := len(starts) - 1; i >= 0 && starts[i] > now-h.per; i-- {
					within++
				}
				if within >= h.rate {
					t.Fatalf("%d starts within %d µs before a start of a host with rate %d", within, h.per, h.rate)
				}
				log = log.Add(now, h.rate, h.per, 1)
				starts = append(starts, now)
			}
			now += rand.Int64N(second / 10)
		}
	}
}

// The clock is set back slightly, set back far, and set ahead. By its own measure, no window has
// too many starts. After a jump back, a start is allowed again within the length of one window plus
// the tolerance.
//
// Fails when starts in the future are forgotten, or are waited for.
func TestClockThatJumps(t *testing.T) {
	const rate, per, ahead = 5, second, 5 * second
	for _, back := range []int64{second / 2, 3 * second, 3600 * second} {
		var log startlog.Log
		now := int64(1 << 50)
		for range rate {
			log = log.Add(now, rate, per, 1)
		}
		now -= back
		log, changed := log.Disbelieve(now, per, ahead)
		if changed != (back > ahead) {
			t.Fatalf("set back by %d: changed is %v", back, changed)
		}
		wait := log.Wait(now, rate, per)
		if wait < per || wait > per+ahead {
			t.Errorf("set back by %d: the next start is in %d: must be %d to %d", back, wait, per, per+ahead)
		}
		if log, changed = log.Disbelieve(now+wait, per, ahead); changed || log.Wait(now+wait, rate, per) != 0 {
			t.Errorf("set back by %d: no start is allowed after that", back)
		}
	}
	log := startlog.Log{}.Add(1<<50, 1, per, 1)
	if log.Wait(1<<50+3600*second, 1, per) != 0 {
		t.Error("set ahead: no start is allowed")
	}
}

// Fails when a text from another version or a person is misread.
func TestTextIsReadBack(t *testing.T) {
	var log startlog.Log
	for i := range int64(100) {
		log = log.Add(1<<50+i*second, 1000, 60*second, 1)
	}
	again, err := startlog.Parse(log.String())
	if err != nil || !slices.Equal(again, log) {
		t.Errorf("%v, %v: must be %v", again, err, log)
	}
	for _, text := range []string{"1", strings.Repeat("x", 26), strings.Repeat("1", 65*26),
		" " + strings.Repeat("1", 25)} {
		if _, err := startlog.Parse(text); err == nil {
			t.Errorf("%.30q was read", text)
		}
	}
}
