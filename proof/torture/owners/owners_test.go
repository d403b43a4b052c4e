package owners

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/tickslot/tickslot/proof/torture"
)

const ms = int64(time.Millisecond)

var promised = Rules{Limits: map[string]int{"a": 2}, MaxActive: 3, MaxRuns: 2, Within: time.Second,
	Recovers: 500 * time.Millisecond, TicksWithin: 3 * time.Second}

// end returns the final database rows of a run.
func end(id int64, state string, tried ...string) []torture.Line {
	w := torture.Work{ID: id, Handler: "a", State: state, Attempt: len(tried), Key: fmt.Sprintf("k%d/0", id)}
	lines := []torture.Line{{Kind: torture.Row, Work: &w}}
	for i, outcome := range tried {
		if outcome != "" {
			lines = append(lines, torture.Line{Kind: torture.Tried, Work: &torture.Work{ID: id, Attempt: i + 1,
				Worker: fmt.Sprint("h", i+1), Outcome: outcome}})
		}
	}
	return lines
}

// called returns the lines of an attempt on the host with its number, valid all the time.
func called(handler string, id int64, attempt int, from, to int64, outcome string) []torture.Line {
	return calledOn(fmt.Sprint("h", attempt), handler, id, attempt, from, to, outcome)
}

func calledOn(host, handler string, id int64, attempt int, from, to int64, outcome string) []torture.Line {
	w := &torture.Work{ID: id, Attempt: attempt, Handler: handler, Key: fmt.Sprintf("k%d/0", id)}
	lines := []torture.Line{{Kind: torture.Started, Host: host, At: from * ms, Work: w},
		{Kind: torture.Seen, Host: host, At: to * ms, First: from * ms, Last: to * ms, Work: w}}
	if outcome != "" {
		said := *w
		said.Outcome = outcome
		lines = append(lines, torture.Line{Kind: torture.Returned, Host: host, At: to * ms, Work: &said})
	}
	return lines
}

func line(kind, host string, w torture.Work) []torture.Line {
	return []torture.Line{{Kind: kind, Host: host, Work: &w}}
}

// ofTick changes all lines of a run to those of a tick's run.
func ofTick(at int64, lines ...[]torture.Line) (all []torture.Line) {
	for _, list := range lines {
		for _, l := range list {
			if l.Kind != torture.Tried {
				w := *l.Work
				w.Schedule, w.Tick, w.Key = "s", at, ""
				l.Work = &w
			}
			all = append(all, l)
		}
	}
	return all
}

// counts returns the counts of a schedule with a tick per second, at the start and later. The time
// is 100 s after the next tick at the start.
func counts(from, to torture.Work) (all []torture.Line) {
	for i, w := range []torture.Work{from, to} {
		w.Schedule, w.Period = "s", 1_000_000
		if w.Now == 0 {
			w.Now = w.Next
		}
		all = append(all, torture.Line{Kind: torture.Ticks, At: int64(i), Work: &w})
	}
	return all
}

// Fails when one of the named violations is not found, or is reported where there is none.
func TestExamine(t *testing.T) {
	good := func(id int64) [][]torture.Line {
		return [][]torture.Line{end(id, "succeeded", "ok"), called("a", id, 1, 0, 10, "ok")}
	}
	triggered := func(outcome string, runs int) []torture.Line {
		return line(torture.Triggered, "c", torture.Work{Key: "k1", Runs: runs, Outcome: outcome})
	}
	promoted := func(from, to int64) []torture.Line {
		return []torture.Line{{Kind: torture.Fault, Fault: torture.Promoted, Target: torture.Commits, First: from * ms,
			Last: to * ms}}
	}
	lostRun := func(from, to int64) []torture.Line {
		return []torture.Line{{Kind: torture.Triggered, Host: "c", First: from * ms, At: to * ms,
			Work: &torture.Work{Key: "k7", Runs: 1, Outcome: torture.Committed}}}
	}
	for _, c := range []struct {
		name  string
		lines [][]torture.Line
		want  Figures
	}{
		{"all in order", append(good(1), triggered(torture.Committed, 1),
			line(torture.Counted, "h1", torture.Work{ID: 1, Attempt: 1, Outcome: "ok"})),
			Figures{Runs: 1, Attempts: 1}},
		{"a retry, and a reclaim", [][]torture.Line{end(1, "succeeded", "error", "lease_lost", "ok"),
			called("a", 1, 1, 0, 10, "error"), called("a", 1, 2, 10, 20, ""), called("a", 1, 3, 20, 30, "ok")},
			Figures{Runs: 1, Attempts: 3, Reclaimed: 1}},
		{"a worker that died before it called the handler", [][]torture.Line{end(1, "succeeded", "lease_lost", "ok"),
			called("a", 1, 2, 10, 20, "ok")}, Figures{Runs: 1, Attempts: 1, Reclaimed: 1}},
		{"a dead letter", [][]torture.Line{end(1, "dead", "error"), called("a", 1, 1, 0, 10, "dead")},
			Figures{Runs: 1, Attempts: 1}},

		{"what a promoted standby lacks: a run, and an attempt of another", [][]torture.Line{end(1, "succeeded", "ok"),
			calledOn("h9", "a", 1, 1, 100, 115, "ok"), called("a", 1, 1, 160, 170, "ok"),
			called("a", 2, 1, 110, 140, "ok"), promoted(90, 150), lostRun(95, 105)},
			Figures{Runs: 1, Attempts: 3, Forgotten: 1}},
		{"a run that was committed before", append(good(1), promoted(90, 150), lostRun(80, 85)),
			Figures{Runs: 1, Attempts: 1, Lost: 1}},
		{"a result of a lost run for the one with its number", [][]torture.Line{{{Kind: torture.Row,
			Work: &torture.Work{ID: 2, Handler: "a", State: "succeeded", Attempt: 1, Key: "new/0"}},
			{Kind: torture.Tried, Work: &torture.Work{ID: 2, Attempt: 1, Worker: "h1", Outcome: "ok"}}},
			called("a", 2, 1, 110, 140, "ok"), promoted(90, 150)}, Figures{Runs: 1, Attempts: 1, Lost: 1}},
		{"an owner by the lost server whose lease has ended", [][]torture.Line{end(1, "succeeded", "lease_lost", "ok"),
			called("a", 1, 1, 80, 900, ""), called("a", 1, 2, 600, 950, "ok"), promoted(90, 150)},
			Figures{Runs: 1, Attempts: 2, Reclaimed: 1, DoubleOwners: 1}},

		{"a committed run that is not there", append(good(1), triggered(torture.Committed, 2)),
			Figures{Runs: 1, Attempts: 1, Lost: 1}},
		{"a run that was rolled back", append(good(1), triggered(torture.RolledBack, 1)),
			Figures{Runs: 1, Attempts: 1, Ghosts: 1}},
		{"runs of which nobody knows", append(good(1), triggered(torture.Unknown, 1)), Figures{Runs: 1, Attempts: 1}},
		{"half a transaction", append(good(1), triggered(torture.Unknown, 2)),
			Figures{Runs: 1, Attempts: 1, Ghosts: 1}},
		{"a run that did not end", [][]torture.Line{end(1, "running", ""), called("a", 1, 1, 0, 10, "")},
			Figures{Attempts: 1, Lost: 1}},
		{"a run that nobody has said to have ended", [][]torture.Line{end(1, "succeeded", "ok"),
			called("a", 1, 1, 0, 10, "error")}, Figures{Runs: 1, Attempts: 1, Lost: 1}},
		{"a dead letter that is none", [][]torture.Line{end(1, "dead", "error"), called("a", 1, 1, 0, 10, "error")},
			Figures{Runs: 1, Attempts: 1, Lost: 1}},
		{"a run that vanished", [][]torture.Line{called("a", 1, 1, 0, 10, "ok")}, Figures{Attempts: 1, Lost: 1}},
		{"an attempt that vanished", [][]torture.Line{end(1, "succeeded", "", "ok"), called("a", 1, 1, 0, 10, "error"),
			called("a", 1, 2, 10, 20, "ok")}, Figures{Runs: 1, Attempts: 2, Lost: 1}},

		{"two owners", [][]torture.Line{end(1, "succeeded", "lease_lost", "ok"), called("a", 1, 1, 0, 11, ""),
			called("a", 1, 2, 10, 20, "ok")}, Figures{Runs: 1, Attempts: 2, Reclaimed: 1, DoubleOwners: 1}},
		{"an owner of old that comes back", [][]torture.Line{end(1, "succeeded", "lease_lost", "ok"),
			called("a", 1, 2, 10, 20, "ok"), called("a", 1, 1, 30, 40, "")},
			Figures{Runs: 1, Attempts: 2, Reclaimed: 1, DoubleOwners: 1}},
		{"two owners for long", [][]torture.Line{end(1, "succeeded", "lease_lost", "ok"), called("a", 1, 1, 0, 50, ""),
			called("a", 1, 2, 10, 20, ""), called("a", 1, 2, 20, 60, "ok")[1:],
			called("a", 1, 1, 50, 55, "")[1:2]}, Figures{Runs: 1, Attempts: 2, Reclaimed: 1, DoubleOwners: 1}},
		{"an attempt that begins twice", append(good(1), calledOn("i", "a", 1, 1, 20, 30, "ok")),
			Figures{Runs: 1, Attempts: 2, DoubleOwners: 1}},
		{"one that is not told", append(good(1), line(torture.Untold, "h", torture.Work{ID: 1, Attempt: 1})),
			Figures{Runs: 1, Attempts: 1, NotTold: 1}},

		{"over the limit of a handler", append(slicesOf(good(1), good(2)), end(3, "succeeded", "ok"),
			calledOn("i", "a", 3, 1, 9, 20, "ok")), Figures{Runs: 3, Attempts: 3, OverHandler: 1}},
		{"over the limit of a handler, as the database has it",
			[][]torture.Line{{{Kind: torture.Looked, Running: map[string]int{"a": 3}}}}, Figures{OverHandler: 1}},
		{"over the limit of all handlers", append(slicesOf(good(1), good(2)), end(3, "succeeded", "ok"),
			calledOn("i", "b", 3, 1, 9, 20, "ok"), end(4, "succeeded", "ok"), calledOn("i", "b", 4, 1, 9, 20, "ok")),
			Figures{Runs: 4, Attempts: 4, OverActive: 1}},
		{"over the limit of all handlers, as the database has it",
			[][]torture.Line{{{Kind: torture.Looked, Running: map[string]int{"a": 2, "b": 2}}}},
			Figures{OverActive: 1}},
		{"over the limit of a worker", append(slicesOf(good(1), good(2)), end(3, "succeeded", "ok"),
			called("b", 3, 1, 9, 20, "ok")), Figures{Runs: 3, Attempts: 3, OverWorker: 1}},
		{"over the limit of a worker, with a handler that does not return", append(slicesOf(good(1), good(2)),
			end(3, "succeeded", "lease_lost", "ok"), called("b", 3, 1, -20, -10, ""), called("b", 3, 2, 9, 20, "ok"),
			[]torture.Line{{Kind: torture.Dead, Target: "h1", At: 5 * ms}}),
			Figures{Runs: 3, Attempts: 4, Reclaimed: 1, OverWorker: 1}},

		{"a result that counts and is not there", append(good(1),
			line(torture.Counted, "h2", torture.Work{ID: 1, Attempt: 1, Outcome: "ok"})),
			Figures{Runs: 1, Attempts: 1, Zombies: 1}},
		{"a result that counts after a reclaim", [][]torture.Line{end(1, "succeeded", "lease_lost", "ok"),
			called("a", 1, 1, 0, 5, "ok"), called("a", 1, 2, 10, 20, "ok"),
			line(torture.Counted, "h1", torture.Work{ID: 1, Attempt: 1, Outcome: "ok"})},
			Figures{Runs: 1, Attempts: 2, Reclaimed: 1, Zombies: 1}},
		{"a result of an attempt of old that ends the next one", [][]torture.Line{
			end(1, "succeeded", "lease_lost", "ok"), called("a", 1, 1, 0, 5, "ok"), called("a", 1, 2, 10, 20, "error")},
			Figures{Runs: 1, Attempts: 2, Reclaimed: 1, Zombies: 1}},
		{"a run that goes on after it has succeeded", [][]torture.Line{end(1, "succeeded", "ok", "ok"),
			called("a", 1, 1, 0, 5, "ok"), called("a", 1, 2, 10, 20, "ok")}, Figures{Runs: 1, Attempts: 2, Zombies: 1}},
		{"a run that has ended with a lost attempt", [][]torture.Line{end(1, "succeeded", "lease_lost"),
			called("a", 1, 1, 0, 5, "ok")}, Figures{Runs: 1, Attempts: 1, Reclaimed: 1, Zombies: 1}},

		{"ticks in order", [][]torture.Line{counts(torture.Work{Next: 5_000_000},
			torture.Work{Next: 8_000_000, Queued: 1, Passed: 2}),
			ofTick(6_000_000, end(1, "succeeded", "ok"), called("a", 1, 1, 0, 10, "ok"))},
			Figures{Runs: 1, Attempts: 1, Ticks: 3}},
		{"a tick that is not accounted for", [][]torture.Line{counts(torture.Work{Next: 5_000_000},
			torture.Work{Next: 8_000_000, Passed: 2})}, Figures{Ticks: 2, Lost: 1}},
		{"a tick that is counted twice", [][]torture.Line{counts(torture.Work{Next: 5_000_000},
			torture.Work{Next: 8_000_000, Passed: 4})}, Figures{Ticks: 4, Lost: 1}},
		{"a tick that was queued and has no run", [][]torture.Line{counts(torture.Work{Next: 5_000_000},
			torture.Work{Next: 8_000_000, Passed: 2, Queued: 1})}, Figures{Ticks: 3, Lost: 1}},
		{"ticks that do not come due", [][]torture.Line{counts(torture.Work{Next: 5_000_000},
			torture.Work{Next: 8_000_000, Passed: 3, Now: 12_500_000})}, Figures{Ticks: 3, Lost: 2}},
		{"a tick with two runs", [][]torture.Line{counts(torture.Work{Next: 5_000_000},
			torture.Work{Next: 8_000_000, Queued: 2, Passed: 1}),
			ofTick(6_000_000, end(1, "succeeded", "ok"), called("a", 1, 1, 0, 10, "ok")),
			ofTick(6_000_000, end(2, "succeeded", "ok"), called("a", 2, 1, 0, 10, "ok"))},
			Figures{Runs: 2, Attempts: 2, Ticks: 3, DuplicateTicks: 1}},
		{"a tick that there is not", [][]torture.Line{counts(torture.Work{Next: 5_000_000},
			torture.Work{Next: 8_000_000, Queued: 1, Passed: 2}),
			ofTick(6_500_000, end(1, "succeeded", "ok"), called("a", 1, 1, 0, 10, "ok"))},
			Figures{Runs: 1, Attempts: 1, Ticks: 3, DuplicateTicks: 1}},
	} {
		var lines []torture.Line
		for _, list := range c.lines {
			lines = append(lines, list...)
		}
		got := Examine(lines, promised)
		if broken := got.Violations() > 0; broken != (len(got.Examples) > 0) {
			t.Errorf("%s: %d violations and %d examples", c.name, got.Violations(), len(got.Examples))
		}
		examples := got.Examples
		got.Examples = nil
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n%+v, want\n%+v\n%q", c.name, got, c.want, examples)
		}
	}
}

// Fails when the time that is excused because the watch got no answer is not counted, or includes
// time excused by faults.
func TestExamineExcused(t *testing.T) {
	looked := func(from, to int64, failed bool) torture.Line {
		return torture.Line{Kind: torture.Looked, First: from * ms, Last: to * ms, Failed: failed}
	}
	fault := func(target string, from, to int64) torture.Line {
		return torture.Line{Kind: torture.Fault, Target: target, First: from * ms, Last: to * ms}
	}
	first, last := looked(1000, 1001, false), looked(10_999, 11_000, false)
	for _, c := range []struct {
		name  string
		lines []torture.Line
		want  float64
	}{
		{"nobody looked", []torture.Line{fault("store", 0, 1000)}, 0},
		{"all looks were answered", []torture.Line{first, looked(5000, 5300, false), last}, 0},
		{"one was not", []torture.Line{first, looked(5000, 5500, true), last}, 0.1},
		{"one was answered late", []torture.Line{first, looked(5000, 5500, false), last}, 0.1},
		{"two at once", []torture.Line{first, looked(5000, 5500, true), looked(5200, 6000, true), last}, 0.15},
		{"the last one", []torture.Line{first, looked(10_000, 11_000, true)}, 0.1},
		{"never", []torture.Line{looked(1000, 6000, true), looked(6000, 11_000, true)}, 1},
		{"because of a fault of all", []torture.Line{first, fault("store", 5000, 6000), looked(5000, 6000, true), last},
			0},
		{"for longer than the fault", []torture.Line{first, fault("store", 5000, 6500), looked(5000, 8500, true), last},
			0.25},
		{"because of a fault of one", []torture.Line{first, fault("host-1", 5000, 6000), looked(5000, 5500, true),
			last}, 0.1},
		{"nothing but faults", []torture.Line{first, fault("store", 0, 20_000), looked(5000, 6000, true), last}, 0},
	} {
		if got := Examine(c.lines, promised); math.Abs(got.Excused-c.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", c.name, got.Excused, c.want)
		}
	}
}

func slicesOf(lists ...[][]torture.Line) (all [][]torture.Line) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// Fails when a run that stays with a dead worker is not found, or a worker is blamed that was not
// well.
func TestExamineReclaims(t *testing.T) {
	// awake returns the lines of a worker that reports all the time.
	awake := func(host string, from, to int64) (lines []torture.Line) {
		for at := from; at <= to; at += 100 {
			lines = append(lines, torture.Line{Kind: torture.Status, Host: host, At: at * ms})
		}
		return lines
	}
	registered := func(host string, at int64) []torture.Line {
		return []torture.Line{{Kind: torture.Registered, Host: host, At: at * ms}}
	}
	fault := func(target string, from, to int64) []torture.Line {
		return []torture.Line{{Kind: torture.Fault, Target: target, First: from * ms, Last: to * ms}}
	}
	expired := func(from, to int64) []torture.Line {
		return []torture.Line{{Kind: torture.Expired, First: from * ms, Last: to * ms, Work: &torture.Work{ID: 1}}}
	}
	for _, c := range []struct {
		name          string
		lines         [][]torture.Line
		timed, slow   int
		slowestMillis int64
	}{
		{"in time", [][]torture.Line{awake("host-1.1", 0, 9000), expired(5000, 5900)}, 1, 0, 900},
		{"too late", [][]torture.Line{awake("host-1.1", 0, 9000), expired(5000, 6100)}, 1, 1, 1100},
		{"nobody is there", [][]torture.Line{expired(5000, 9000)}, 0, 0, 0},
		{"the others are stopped", [][]torture.Line{awake("host-1.1", 0, 4000), awake("host-2.7", 7500, 9500),
			expired(5000, 9000)}, 1, 0, 500},
		{"one was stopped in between", [][]torture.Line{awake("host-1.1", 0, 5500), awake("host-1.1", 6000, 7400),
			expired(5000, 9000)}, 1, 0, 900},
		{"one is well for long enough", [][]torture.Line{awake("host-1.1", 0, 5500), awake("host-2.1", 3000, 9000),
			expired(5000, 9000)}, 1, 1, 4000},
		{"one has just registered", [][]torture.Line{awake("host-3.1", 3000, 9000), registered("host-3.1", 5500),
			expired(5000, 6000)}, 1, 0, 500},
		{"one registers in time, and reclaims too late", [][]torture.Line{awake("host-3.1", 3000, 9000),
			registered("host-3.1", 5500), expired(5000, 7000)}, 1, 1, 1500},
		{"one could never register", [][]torture.Line{awake("host-3.1", 3000, 9000), expired(5000, 9000)}, 0, 0, 0},
		{"cut off", [][]torture.Line{awake("host-1.1", 0, 9000), fault("host-1", 4000, 6000), fault("host-2", 0, 9000),
			expired(5000, 7000)}, 1, 0, 500},
		{"cut off before", [][]torture.Line{awake("host-1.1", 0, 9000), fault("host-1", 3000, 4500),
			expired(5000, 7000)}, 1, 1, 2000},
		{"the database was away", [][]torture.Line{awake("host-1.1", 0, 9000), fault("store", 4000, 6000),
			expired(5000, 7000)}, 1, 0, 500},
		{"the database did not answer the watch", [][]torture.Line{awake("host-1.1", 0, 9000), expired(5000, 7000),
			{{Kind: torture.Looked, First: 5000 * ms, Last: 5900 * ms}}}, 1, 0, 600},
	} {
		lines := slices.Concat(registered("host-1.1", 0), registered("host-2.1", 3000), registered("host-2.7", 8500))
		for _, list := range c.lines {
			lines = append(lines, list...)
		}
		got := Examine(lines, promised)
		if got.Timed != c.timed || got.SlowReclaims != c.slow || got.SlowestMillis != c.slowestMillis {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}
