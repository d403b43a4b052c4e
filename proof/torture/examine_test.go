package torture

import (
	"reflect"
	"slices"
	"testing"
	"time"
)

const (
	ms  = int64(time.Millisecond)
	sec = int64(time.Second)
)

// born returns the lines of two hosts with a timer with limit two, alive all the time.
func born() []Line {
	t := []TimerLine{{Name: "a", Limit: 2, PerTick: 2, PerHost: 1, Period: 100 * ms}}
	return []Line{{Kind: Born, Target: "h", Timers: t}, {Kind: Born, Target: "i", Timers: t}}
}

func seen(host string, run int64, slot int, fence, from, to int64) Line {
	return Line{Kind: Seen, Host: host, Run: run, Timer: "a", Slot: slot, Fence: fence, At: to * ms, First: from * ms,
		Last: to * ms}
}

func tick(l Line, at int64) Line { l.Tick = at; return l }

// Fails when one of the named violations is not found, or is reported where there is none.
func TestExamineRuns(t *testing.T) {
	sharing := Line{Kind: Born, Target: "j", Timers: []TimerLine{{Name: "a", Limit: 2, PerTick: 2, Shared: 1},
		{Name: "b", Limit: 2, PerTick: 2, Shared: 1}}}
	for _, c := range []struct {
		name  string
		lines []Line
		want  Figures
	}{
		{"two leaders at once", []Line{{Kind: Born, Target: "j", Roles: []TimerLine{{Name: "a", Limit: 2}}},
			seen("h", 1, 0, 1, 0, 10), seen("i", 1, 1, 2, 2, 8), seen("i", 2, 2, 3, 5, 6)},
			Figures{Terms: 3, OverLimit: 1}},
		{"in order", []Line{seen("h", 1, 0, 1, 0, 10), seen("i", 1, 1, 2, 0, 10), seen("h", 2, 0, 3, 10, 20)},
			Figures{Runs: 3}},
		{"pieces of one run", []Line{seen("h", 1, 0, 1, 0, 50), seen("h", 1, 0, 1, 50, 100),
			seen("i", 1, 1, 2, 50, 60)}, Figures{Runs: 2}},
		{"a gap in one run, and another in it", []Line{seen("h", 1, 0, 1, 0, 10), seen("i", 1, 0, 2, 30, 40),
			seen("h", 1, 0, 1, 100, 110)},
			Figures{Runs: 2, FenceRegressions: 1}},
		{"over the limit", []Line{seen("h", 1, 0, 1, 0, 10), seen("i", 1, 1, 2, 2, 8), seen("i", 2, 2, 3, 5, 6)},
			Figures{Runs: 3, OverLimit: 1}},
		{"over the limit, in pieces", []Line{seen("h", 1, 0, 1, 0, 10), seen("i", 1, 1, 2, 2, 8),
			seen("i", 2, 2, 3, 5, 6), seen("i", 2, 2, 3, 6, 7)}, Figures{Runs: 3, OverLimit: 1}},
		{"two in one slot", []Line{seen("h", 1, 0, 1, 0, 10), seen("i", 1, 0, 2, 9, 20)},
			Figures{Runs: 2, SameSlot: 1}},
		{"a fence that falls", []Line{seen("h", 1, 0, 2, 0, 10), seen("i", 1, 0, 1, 11, 20)},
			Figures{Runs: 2, FenceRegressions: 1}},
		{"the same fence twice", []Line{seen("h", 1, 0, 2, 0, 10), seen("i", 1, 0, 2, 11, 20)},
			Figures{Runs: 1, FenceRegressions: 1}},
		{"valid after it was lost", []Line{{Kind: LeaseEnd, Host: "h", Timer: "a", At: 12 * ms},
			func() Line { l := seen("h", 1, 0, 1, 11, 20); l.Lost = true; return l }()},
			Figures{Runs: 1, StartAfterLost: 1, LeasesLost: 1}},
		{"one that is not told", []Line{seen("h", 1, 0, 1, 11, 20),
			{Kind: Untold, Host: "h", Timer: "a", At: 2 * sec}}, Figures{Runs: 1, NotTold: 1}},
		{"a tick started too often", []Line{tick(seen("h", 1, 0, 1, 0, 10), 7), tick(seen("i", 1, 1, 2, 0, 10), 7),
			tick(seen("h", 2, 0, 3, 20, 30), 7)}, Figures{Runs: 3, OverTick: 1}},
		{"a tick that the store forgot", []Line{tick(seen("h", 1, 0, 1, 0, 10), 7),
			tick(seen("i", 1, 1, 2, 0, 10), 7), {Kind: Fault, Fault: Wiped, At: 19 * ms, First: 12 * ms, Last: 19 * ms},
			tick(seen("h", 2, 0, 3, 20, 30), 7)}, Figures{Runs: 3}},
		{"a fence, and a tick, of when clocks were ahead, on a store that has lost them", []Line{
			tick(seen("h", 1, 0, 9, 0, 10), 7), {Kind: Fault, Fault: Stepped, By: -sec, At: 12 * ms, First: 11 * ms,
				Last: 12 * ms}, {Kind: Fault, Fault: Wiped, At: 14 * ms, First: 13 * ms, Last: 14 * ms},
			tick(seen("i", 1, 0, 1, 20, 30), 7)}, Figures{Runs: 2, Declared: Declared{FenceRegressions: 1}}},
		{"a fence that falls with the clock", []Line{seen("h", 1, 0, 2, 0, 10), {Kind: Fault, Fault: Stepped, By: -sec,
			At: 11 * ms, First: 10 * ms, Last: 11 * ms}, seen("i", 1, 0, 1, 11, 20)},
			Figures{Runs: 2, FenceRegressions: 1}},
		{"a fence of when clocks were ahead, which expired when they were set on", []Line{seen("h", 1, 0, 9, 0, 10),
			{Kind: Fault, Fault: Stepped, By: 7200 * sec, At: 12 * ms, First: 11 * ms, Last: 12 * ms},
			seen("i", 1, 0, 1, 9000, 9010)}, Figures{Runs: 2, Declared: Declared{FenceRegressions: 1}}},
		{"a fence that falls when clocks were set on by a little", []Line{seen("h", 1, 0, 9, 0, 10),
			{Kind: Fault, Fault: Stepped, By: 60 * sec, At: 12 * ms, First: 11 * ms, Last: 12 * ms},
			seen("i", 1, 0, 1, 9000, 9010)}, Figures{Runs: 2, FenceRegressions: 1}},
		{"leases that end early when clocks are set on", []Line{seen("h", 1, 0, 1, 0, 30), {Kind: Fault, Fault: Stepped,
			By: sec, At: 9 * ms, First: 8 * ms, Last: 9 * ms}, seen("i", 1, 0, 2, 10, 20)},
			Figures{Runs: 2, Declared: Declared{SameSlot: 1}}},
		{"a larger limit while both live", []Line{seen("h", 1, 0, 1, 0, 10), seen("i", 1, 1, 2, 0, 10),
			seen("h", 2, 2, 3, 5, 8),
			{Kind: Born, Target: "j", At: 2 * ms, Timers: []TimerLine{{Name: "a", Limit: 3}}},
			{Kind: Dead, Target: "j", At: 9 * ms}}, Figures{Runs: 3}},
		{"a larger limit before", []Line{seen("h", 1, 0, 1, 0, 10), seen("i", 1, 1, 2, 0, 10), seen("h", 2, 2, 3, 5, 8),
			{Kind: Born, Target: "j", At: 2 * ms, Timers: []TimerLine{{Name: "a", Limit: 3}}},
			{Kind: Dead, Target: "j", At: 4 * ms}}, Figures{Runs: 3, OverLimit: 1}},
		{"timers that share a limit", []Line{sharing, seen("h", 1, 0, 1, 0, 10), func() Line {
			l := seen("i", 1, 0, 2, 10, 20)
			l.Timer = "b"
			return l
		}()}, Figures{Runs: 2}},
		{"over a limit that timers share", []Line{sharing, seen("h", 1, 0, 1, 0, 10), func() Line {
			l := seen("i", 1, 0, 2, 9, 20)
			l.Timer = "b"
			return l
		}()}, Figures{Runs: 2, OverLimit: 1}},
		{"a failover", []Line{{Kind: Fault, Fault: Failover, At: 9 * ms, First: 5 * ms, Last: 9 * ms},
			seen("h", 1, 0, 1, 0, 20), seen("i", 1, 1, 2, 0, 20), seen("h", 2, 0, 3, 10, 15)},
			Figures{Runs: 3, Declared: Declared{OverLimit: 1, SameSlot: 1, Most: 1}}},
		{"a failover that is waited for", []Line{{Kind: Fault, Fault: Replaced, At: 19 * ms, First: 5 * ms,
			Last: 19 * ms}, tick(seen("h", 1, 0, 1, 0, 20), 7), tick(seen("i", 1, 1, 2, 0, 20), 7),
			tick(seen("h", 2, 0, 3, 10, 15), 7)},
			Figures{Runs: 3, OverLimit: 1, SameSlot: 1}},
		{"long after a failover", []Line{{Kind: Fault, Fault: Failover, At: 9 * ms, First: 5 * ms, Last: 9 * ms},
			seen("h", 1, 0, 1, 3000, 3020), seen("i", 1, 1, 2, 3000, 3020), seen("h", 2, 0, 3, 3010, 3015)},
			Figures{Runs: 3, OverLimit: 1, SameSlot: 1}},
		{"more than both sides of a failover may have", []Line{{Kind: Fault, Fault: Failover, At: 9 * ms,
			First: 5 * ms, Last: 9 * ms},
			seen("h", 1, 0, 1, 0, 20), seen("h", 2, 1, 2, 0, 20), seen("i", 1, 2, 3, 10, 20),
			seen("i", 2, 3, 4, 11, 20), seen("i", 3, 4, 5, 12, 20)},
			Figures{Runs: 5, OverLimit: 1, Declared: Declared{OverLimit: 2, Most: 2}}},
		{"more degraded runs than hosts", []Line{{Kind: Degraded, Host: "h", Run: 1, Timer: "a", At: 10, First: 0,
			Last: 10}, {Kind: Degraded, Host: "i", Run: 1, Timer: "a", At: 10, First: 0, Last: 10},
			{Kind: Degraded, Host: "i", Run: 2, Timer: "a", At: 10, First: 5, Last: 10}},
			Figures{Degraded: 3, DegradedMost: 3, OverBound: 1}},
	} {
		got := Examine(append(born(), c.lines...), Rules{TTL: time.Second})
		if broken := got.Violations() > 0; broken != (len(got.Examples) > 0) {
			t.Errorf("%s: %d violations and %d examples", c.name, got.Violations(), len(got.Examples))
		}
		got.Examples = nil
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n%+v, want\n%+v", c.name, got, c.want)
		}
	}
}

// statuses returns the lines of a host that reports its one timer every 100 ms, the timer's period,
// for three seconds.
func statuses(change func(i int, l *Line)) []Line {
	lines := append(born(), Line{Kind: Begin, Host: "h", Timers: born()[0].Timers})
	for i := range 31 {
		l := Line{Kind: Status, Host: "h", At: int64(i)*100*ms + 1, Ticks: []uint64{uint64(i)},
			Done: []uint64{uint64(i)}}
		change(i, &l)
		if l.Kind != "" {
			lines = append(lines, l)
		}
	}
	return lines
}

// Fails when a tick that was neither started nor skipped is not reported, when one that never came
// due is not, and when a host is blamed for time in which it was paused or draining, or that a jump
// of its clock removed.
func TestExamineAccounts(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(i int, l *Line)
		want   int64
	}{
		{"all in order", func(int, *Line) {}, 0},
		{"one under way at the end", func(i int, l *Line) { l.Done[0] = uint64(max(0, i-1)) }, 0},
		{"one that was never accounted for", func(i int, l *Line) {
			if i > 5 {
				l.Done[0]--
			}
		}, 0}, // at the end it may be in flight
		{"eleven that were never accounted for", func(i int, l *Line) { l.Done[0] -= min(uint64(i), 11) }, 1},
		{"one, and a clean end", func(i int, l *Line) {
			if i == 30 {
				l.Kind = End
			}
			if i > 5 {
				l.Done[0]--
			}
		}, 1},
		{"ticks that did not come due",
			func(i int, l *Line) { l.Ticks[0], l.Done[0] = uint64(min(i, 10)), uint64(min(i, 10)) }, 8},
		{"stopped", func(i int, l *Line) {
			if i > 5 && i < 26 {
				l.Kind = ""
			}
			if i >= 26 {
				l.Ticks[0], l.Done[0] = 5, 5
			}
		}, 0},
		{"stopped with three under way, and killed soon after", func(i int, l *Line) {
			if i > 5 && i < 26 {
				l.Kind = ""
			}
			l.Ticks[0], l.Done[0] = uint64(min(i, 5)), uint64(min(i, 2))
		}, 0},
		{"stopped, and told to drain as soon as it goes on", func(i int, l *Line) {
			if i > 10 {
				l.At += 5 * sec
			}
			if i == 12 {
				l.Kind = Drain
			}
			l.Ticks[0], l.Done[0] = uint64(min(i, 10)), uint64(min(i, 10))
		}, 0},
		{"draining", func(i int, l *Line) {
			if i == 10 {
				l.Kind = Drain
			}
			l.Ticks[0], l.Done[0] = uint64(min(i, 10)), uint64(min(i, 10))
		}, 0},
		{"a clock that was set on", func(i int, l *Line) {
			if i == 5 {
				*l = Line{Kind: Jump, Host: "h", At: l.At, By: 10 * sec}
				return
			}
			if i > 5 {
				l.Ticks[0], l.Done[0] = l.Ticks[0]+100, l.Done[0]+100
			}
		}, 0},
		{"a clock that was set on, and nobody counted", func(i int, l *Line) {
			if i == 5 {
				*l = Line{Kind: Jump, Host: "h", At: l.At, By: 10 * sec}
			}
		}, 86},
		{"a clock that was set back, and on again", func(i int, l *Line) {
			if i == 5 || i == 10 {
				*l = Line{Kind: Jump, Host: "h", At: l.At, By: int64(i-7) / 2 * 600 * sec}
			}
		}, 0},
	} {
		if got := Examine(statuses(c.change), Rules{TTL: time.Second}).Unaccounted; got != c.want {
			t.Errorf("%s: %d unaccounted, want %d", c.name, got, c.want)
		}
	}
}

// Fails when a host's leftovers are not counted, or when a timer that stays silent after recovery,
// or N that is never reached, is not reported.
func TestExamineTheRest(t *testing.T) {
	lines := statuses(func(i int, l *Line) {
		if i == 30 {
			l.Kind, l.Leaked, l.Stuck = End, 2, "a handler"
		}
	})
	lines = append(lines, seen("h", 1, 0, 1, 0, 1500), seen("i", 1, 1, 2, 0, 750))
	got := Examine(slices.Clone(lines), Rules{TTL: time.Second, Settled: 2 * sec})
	if got.Leaked != 2 || got.Stuck != 1 || len(got.Silent) != 1 {
		t.Errorf("%+v", got)
	}
	if got.NReachedShare < 0.24 || got.NReachedShare > 0.26 {
		t.Errorf("both slots were taken a quarter of the time, and it says %v", got.NReachedShare)
	}
	got = Examine(append(lines, seen("h", 2, 0, 3, 2100, 2200)), Rules{TTL: time.Second, Settled: 2 * sec})
	if len(got.Silent) != 0 {
		t.Errorf("silent: %v", got.Silent)
	}
}

// Fails when an incomplete last line of a killed process is parsed, or a complete line is not.
func TestReadLogs(t *testing.T) {
	dir := t.TempDir()
	log, err := OpenLog(dir, "h", func() int64 { return 5 })
	if err != nil {
		t.Fatal(err)
	}
	log.Write(Line{Kind: Seen, Timer: "a", Fence: 1 << 60})
	if _, err := log.file.WriteString(`{"k":"seen","ti`); err != nil {
		t.Fatal(err)
	}
	got, err := ReadLogs(dir)
	if want := []Line{{Kind: Seen, Host: "h", At: 5, Timer: "a", Fence: 1 << 60}}; err != nil ||
		!reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

// Fails when a window with too many starts passes, one with exactly the allowed number does not, or
// the used share of a rate is measured wrongly.
func TestExamineRates(t *testing.T) {
	born := Line{Kind: Born, Target: "h", Timers: []TimerLine{{Name: "a", Limit: 9, Rated: "few", Rate: 2, Per: sec},
		{Name: "b", Limit: 9, Rated: "few", Rate: 2, Per: sec}}}
	start := func(first, last int64) Line {
		return Line{Kind: Granted, Host: "h", Target: "few", First: first * ms, Last: last * ms}
	}
	for _, c := range []struct {
		name  string
		lines []Line
		want  Figures
	}{
		{"as many as allowed", []Line{start(0, 1), start(500, 501), start(1000, 1001), start(1500, 1501),
			start(2000, 2001)}, Figures{Rated: 5, RateUsed: 1, RateWindows: 1}},
		{"a third", []Line{start(0, 1), start(998, 999), start(500, 501)}, Figures{Rated: 3, OverRate: 1}},
		{"a third across the border of a second", []Line{start(900, 901), start(901, 902), start(1100, 1101)},
			Figures{Rated: 3, OverRate: 1}},
		{"a third that may have been counted later", []Line{start(0, 1), start(500, 501), start(998, 1000)},
			Figures{Rated: 3}},
		{"one of another limit", []Line{start(0, 1), start(500, 501),
			{Kind: Granted, Target: "many", First: 600 * ms, Last: 601 * ms}}, Figures{Rated: 3}},
		{"a third after the clock was set on", []Line{start(0, 1), start(500, 501), start(600, 601),
			{Kind: Fault, Fault: Stepped, By: sec, First: 550 * ms, Last: 551 * ms}},
			Figures{Rated: 3, Declared: Declared{OverRate: 1}}},
		{"a third after the clock was set back", []Line{start(0, 1), start(500, 501), start(600, 601),
			{Kind: Fault, Fault: Stepped, By: -sec, First: 550 * ms, Last: 551 * ms}}, Figures{Rated: 3, OverRate: 1}},
		{"half of it used", []Line{start(2000, 2001), start(3000, 3001), start(4000, 4001), start(5000, 5001)},
			Figures{Rated: 4, RateUsed: 0.5, RateWindows: 2}},
		{"used only while there were faults", []Line{start(-4000, -3999), start(-3000, -2999), start(-2000, -1999)},
			Figures{Rated: 3}},
	} {
		got := Examine(append([]Line{born}, c.lines...), Rules{TTL: time.Second, CalmUntil: 10 * sec})
		got.Examples = nil
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", c.name, got, c.want)
		}
	}
}
