package deliveries

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/tickslot/tickslot/proof/torture"
)

const ms = int64(time.Millisecond)

var promised = Rules{MaxAttempts: 3, Within: 4 * time.Second, Looks: 2 * time.Second, Recovers: 500 * time.Millisecond,
	Begins: time.Second}

func line(kind, host string, at int64, m torture.Message) []torture.Line {
	return []torture.Line{{Kind: kind, Host: host, At: at * ms, Message: &m}}
}

// of returns the only message of the change with that number.
func of(version int64) torture.Message {
	return torture.Message{Order: "o", Version: version, By: "p", Keyed: true, Seq: version}
}

func changed(version int64, count int) []torture.Line {
	return line(torture.Change, "", 1000, torture.Message{Order: "o", Version: version, By: "p", Count: count})
}

// end returns the database rows of a message whose attempts were on the host h.
func end(version int64, state string, outcomes ...string) []torture.Line {
	m := of(version)
	m.State, m.Attempt = state, len(outcomes)
	lines := line(torture.Row, "", 1000, m)
	for i, outcome := range outcomes {
		if outcome != "" {
			lines = append(lines, line(torture.Tried, "", 1000, torture.Message{Seq: version, Attempt: i + 1, Node: "h",
				Outcome: outcome})...)
		}
	}
	return lines
}

// called returns the lines of a sink call that returned said, or that did not return if said is "".
func called(version int64, attempt int, from, to int64, said string) []torture.Line {
	m := of(version)
	m.Attempt = attempt
	lines := line(torture.Started, "h", from, m)
	if m.Outcome = said; said != "" {
		lines = append(lines, line(torture.Returned, "h", to, m)...)
	}
	return lines
}

func effect(version int64) []torture.Line { return line(torture.Effect, "", 1000, of(version)) }

func appended(version int64, outcome string) []torture.Line {
	return line(torture.Appended, "p", 0, torture.Message{Order: "o", Version: version, By: "p", Outcome: outcome})
}

// promoted returns the line of a standby that took over. It may lack what was committed in that
// time.
func promoted(from, to int64) []torture.Line {
	return []torture.Line{{Kind: torture.Fault, Fault: torture.Promoted, Target: torture.Commits, At: to * ms,
		First: from * ms, Last: to * ms}}
}

// good returns the lines of a message that was delivered at once.
func good(version, from, to int64) [][]torture.Line {
	return [][]torture.Line{changed(version, 1), end(version, "dispatched", "ok"),
		called(version, 1, from, to, torture.Accepted), effect(version)}
}

func joined(lists ...[][]torture.Line) (all [][]torture.Line) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// Fails when one of the named violations is not found, or is reported where there is none.
func TestExamine(t *testing.T) {
	one := Figures{Changes: 1, Messages: 1, Dispatched: 1, Attempts: 1}
	with := func(f Figures, more func(*Figures)) Figures { more(&f); return f }
	for _, c := range []struct {
		name  string
		lines [][]torture.Line
		want  Figures
	}{
		{"all in order", joined(good(1, 0, 10), good(2, 10, 20), [][]torture.Line{appended(1, torture.Committed),
			appended(2, torture.Unknown), appended(3, torture.RolledBack), appended(4, torture.Unknown)}),
			Figures{Changes: 2, RolledBack: 1, Messages: 2, Dispatched: 2, Attempts: 2}},
		{"a retry, and one that a killed relay had", [][]torture.Line{changed(1, 1),
			end(1, "dispatched", "transient", "ok"), called(1, 1, 0, 10, torture.Failed), called(1, 2, 20, 30, ""),
			called(1, 2, 40, 50, torture.Accepted), called(1, 2, 60, 70, torture.Accepted), effect(1),
			line(torture.Dropped, "r", 65, of(1))}, with(one, func(f *Figures) { f.Attempts, f.Dropped = 2, 1 })},
		{"one that is refused, and one whose attempts are used up", [][]torture.Line{changed(1, 1),
			end(1, "dead", "permanent"), called(1, 1, 0, 10, torture.Refused), changed(2, 1),
			end(2, "dead", "transient", "transient", "exhausted"), called(2, 1, 20, 30, torture.Failed),
			called(2, 2, 30, 40, ""), called(2, 3, 50, 60, torture.Failed)},
			Figures{Changes: 2, Messages: 2, Rejected: 1, Exhausted: 1, Attempts: 4}},

		{"what a promoted standby lacks: a change, its delivery, and an effect", joined(
			good(1, 110, 120)[:3], [][]torture.Line{appended(2, torture.Committed),
				called(2, 1, 115, 130, torture.Accepted), promoted(0, 150)}),
			with(one, func(f *Figures) { f.Forgotten = 1 })},
		{"what was committed before", joined(good(1, 0, 10), [][]torture.Line{appended(2, torture.Committed),
			promoted(50, 150)}), with(one, func(f *Figures) { f.Lost = 1 })},
		{"what was committed while a standby was made", joined(good(1, 0, 10), [][]torture.Line{promoted(50, 150),
			appended(2, torture.Committed), {{Kind: torture.Fault, Fault: torture.Promoted, Target: "store",
				Last: 150 * ms}}}), with(one, func(f *Figures) { f.Lost = 1 })},
		{"an effect that was there before", joined(good(1, 10, 20)[:3], [][]torture.Line{promoted(50, 150)}),
			Figures{Changes: 1, Messages: 1, Attempts: 1, Lost: 1}},
		{"a result of a lost message for the one with its number", [][]torture.Line{changed(2, 1),
			end(2, "dispatched", "ok"), appended(1, torture.Committed), promoted(0, 150),
			line(torture.Started, "h", 90, torture.Message{Order: "o", Version: 1, By: "p", Seq: 2, Attempt: 1}),
			line(torture.Returned, "h", 95, torture.Message{Order: "o", Version: 1, By: "p", Seq: 2, Attempt: 1,
				Outcome: torture.Accepted})},
			Figures{Changes: 1, Messages: 1, Attempts: 1, Lost: 2, Forgotten: 1}},

		{"a change that is not there", joined(good(1, 0, 10), [][]torture.Line{appended(2, torture.Committed)}),
			with(one, func(f *Figures) { f.Lost = 1 })},
		{"a message that is not there", [][]torture.Line{changed(1, 1)},
			Figures{Changes: 1, Messages: 1, Lost: 1, Together: 1}},
		{"a message that waits for ever", [][]torture.Line{changed(1, 1), end(1, "pending")},
			Figures{Changes: 1, Messages: 1, Lost: 1}},
		{"a message without its effect", joined(good(1, 0, 10)[:3]),
			Figures{Changes: 1, Messages: 1, Attempts: 1, Lost: 1}},
		{"a message that was marked and not delivered", [][]torture.Line{changed(1, 1), end(1, "dispatched", "ok"),
			effect(1)}, with(one, func(f *Figures) { f.Lost = 1 })},
		{"a message that was marked although its sink failed", [][]torture.Line{changed(1, 1),
			end(1, "dispatched", "ok"), called(1, 1, 0, 10, torture.Failed), effect(1)},
			with(one, func(f *Figures) { f.Lost = 1 })},
		{"a message that is dead too soon", [][]torture.Line{changed(1, 1), end(1, "dead", "exhausted"),
			called(1, 1, 0, 10, torture.Failed)}, Figures{Changes: 1, Messages: 1, Attempts: 1, Lost: 1}},
		{"a message that is dead and was not refused", [][]torture.Line{changed(1, 1), end(1, "dead", "permanent"),
			called(1, 1, 0, 10, torture.Failed)},
			Figures{Changes: 1, Messages: 1, Attempts: 1, Rejected: 1, Lost: 1}},
		{"a message that goes on after it was delivered", [][]torture.Line{changed(1, 1),
			end(1, "dispatched", "ok", "ok"), called(1, 1, 0, 10, torture.Accepted),
			called(1, 2, 20, 30, torture.Accepted), effect(1)},
			with(one, func(f *Figures) { f.Attempts, f.Lost = 2, 1 })},
		{"an attempt that vanished", [][]torture.Line{changed(1, 1), end(1, "dispatched", "", "ok"),
			called(1, 1, 0, 10, torture.Failed), called(1, 2, 20, 30, torture.Accepted), effect(1)},
			with(one, func(f *Figures) { f.Uncounted = 1 })},

		{"a message of no change", joined(good(1, 0, 10)[1:]),
			Figures{Dispatched: 1, Attempts: 1, Ghosts: 1}},
		{"a delivery of no change", [][]torture.Line{called(1, 1, 0, 10, torture.Accepted)}, Figures{Ghosts: 1}},
		{"an effect of no change", [][]torture.Line{effect(1)}, Figures{Ghosts: 1}},
		{"a change that was rolled back", joined(good(1, 0, 10), [][]torture.Line{appended(1, torture.RolledBack)}),
			with(one, func(f *Figures) { f.RolledBack, f.Ghosts = 1, 1 })},
		{"an effect that came twice", joined(good(1, 0, 10), [][]torture.Line{effect(1)}),
			with(one, func(f *Figures) { f.Doubled = 1 })},

		{"one that overtook another", joined(good(1, 5, 10), good(2, 7, 20)),
			Figures{Changes: 2, Messages: 2, Dispatched: 2, Attempts: 2, Overtaken: 1}},
		{"one that overtook another, as its effect tells", joined(good(2, 11, 20), good(1, 0, 10)),
			Figures{Changes: 2, Messages: 2, Dispatched: 2, Attempts: 2, Overtaken: 1}},
		{"one that overtook a retry", joined([][]torture.Line{changed(1, 1),
			end(1, "dispatched", "transient", "ok"), called(1, 1, 0, 10, torture.Failed),
			called(1, 2, 30, 40, torture.Accepted), effect(1)}, good(2, 20, 25)),
			Figures{Changes: 2, Messages: 2, Dispatched: 2, Attempts: 3, Overtaken: 1}},
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

// Fails when the time that is excused because the watch got no answer is not counted, as in package
// owners.
func TestExamineExcused(t *testing.T) {
	lines := []torture.Line{{Kind: torture.Looked, Last: ms},
		{Kind: torture.Looked, First: 40_000 * ms, Last: 40_001 * ms}}
	if got := Examine(lines, promised); got.Excused != 0 {
		t.Errorf("all looks were answered: %v", got.Excused)
	}
	lines = append(lines, torture.Line{Kind: torture.Looked, First: 10_000 * ms, Last: 11_000 * ms, Failed: true})
	want := float64(1000*ms+int64(promised.Recovers)) / float64(40_001*ms)
	if got := Examine(lines, promised); math.Abs(got.Excused-want) > 1e-9 {
		t.Errorf("one was not: %v, want %v", got.Excused, want)
	}
}

// Fails when a message that waits too long is not found, or a relay is blamed that was not well.
func TestExamineFailOvers(t *testing.T) {
	// awake returns the lines of a relay that reports all the time.
	awake := func(host string, from, to int64) (lines []torture.Line) {
		for at := from; at <= to; at += 100 {
			lines = append(lines, torture.Line{Kind: torture.Status, Host: host, At: at * ms})
		}
		return lines
	}
	fault := func(kind, target string, from, to int64) []torture.Line {
		return []torture.Line{{Kind: torture.Fault, Fault: kind, Target: target, First: from * ms, Last: to * ms}}
	}
	due := func(from, to int64) []torture.Line {
		return []torture.Line{{Kind: torture.Due, First: from * ms, Last: to * ms, Message: &torture.Message{Seq: 1}}}
	}
	well, gone := awake("host-1.1", 0, 30_000), fault("host_gone", "host-2", 10_000, 20_000)
	for _, c := range []struct {
		name          string
		lines         [][]torture.Line
		timed, slow   int
		slowestMillis int64
	}{
		{"nothing was done", [][]torture.Line{well, due(10_000, 11_900)}, 0, 0, 0},
		{"nothing was done, and it took long", [][]torture.Line{well, due(10_000, 12_100)}, 0, 1, 0},
		{"in time", [][]torture.Line{well, gone, due(9_500, 13_900)}, 1, 0, 3900},
		{"too late", [][]torture.Line{well, gone, due(9_500, 14_100)}, 1, 1, 4100},
		{"after a fault that was short", [][]torture.Line{well, fault("host_kill", "host-2", 10_000, 10_010),
			due(10_500, 14_600)}, 1, 1, 4100},
		{"somebody began", [][]torture.Line{well, gone, called(1, 1, 12_000, 0, ""),
			due(10_000, 15_000), changed(1, 1)}, 1, 0, 3000},
		{"cut off for long", [][]torture.Line{well, fault("net_cut", "host-2", 10_000, 13_000), due(10_000, 16_900)},
			1, 0, 6900},
		{"one after the other", [][]torture.Line{well, gone,
			fault("host_kill", "host-3", 13_000, 13_010), due(10_000, 16_500)}, 0, 0, 0},
		{"all were away", [][]torture.Line{well, fault("store_kill", "store", 10_000, 13_000), due(10_000, 15_400)},
			0, 0, 0},
		{"a receiver was away", [][]torture.Line{well, fault("host_stop", "receiver-1", 10_000, 13_000),
			due(10_000, 15_600)}, 0, 1, 0},
		{"the only one that was well was not for long", [][]torture.Line{awake("host-1.1", 0, 11_000),
			gone, due(10_000, 19_000)}, 0, 0, 0},
	} {
		var lines []torture.Line
		for _, list := range c.lines {
			lines = append(lines, list...)
		}
		got := Examine(lines, promised)
		if got.Timed != c.timed || got.Slow != c.slow || got.SlowestMillis != c.slowestMillis {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}
