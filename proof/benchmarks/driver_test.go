package main

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A fake returns scripted values, one per round.
type fake struct {
	values []float64
	did    float64
	log    *[]string
	name   string
	err    error
	closed int
}

func (f *fake) measure(time.Duration) (sample, error) {
	if f.log != nil {
		*f.log = append(*f.log, f.name)
	}
	v := f.values[0]
	f.values = append(f.values[1:], v)
	return sample{Value: v, Did: f.did, Extra: map[string]float64{"twice": 2 * v}}, f.err
}

func (f *fake) close() error { f.closed++; return nil }

func scripted(name string, values ...float64) Case {
	return Case{Name: name, Open: func() (runner, error) { return &fake{values: slices.Clone(values), did: 1}, nil }}
}

// Fails when the median of an even number of values is one of the middle two, when the list is not
// sorted first, or when it is sorted in place.
func TestMedian(t *testing.T) {
	for _, c := range []struct {
		list []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 3, 2}, 2.5}} {
		before := slices.Clone(c.list)
		if got := median(c.list); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.list, got, c.want)
		}
		if !slices.Equal(before, c.list) {
			t.Errorf("the median has changed its list to %v", c.list)
		}
	}
	if !math.IsNaN(median(nil)) {
		t.Error("nothing has a median")
	}
	if got := spreadOf([]float64{2, 9, 4}); got != (spread{4, 2, 9}) {
		t.Errorf("got %+v", got)
	}
}

// Fails when a case comes first twice in n rounds or never, or a round omits one.
func TestRotation(t *testing.T) {
	const n = 5
	firsts := map[int]bool{}
	for round := range n {
		order := rotated(n, round)
		firsts[order[0]] = true
		if slices.Sort(order); !slices.Equal(order, []int{0, 1, 2, 3, 4}) {
			t.Errorf("round %d has %v", round, order)
		}
	}
	if len(firsts) != n {
		t.Errorf("these came first: %v", firsts)
	}
}

// Fails when the result is the ratio of the medians (here 3) instead of the median of the ratios
// within a round. A machine that is slow for a round is slow for both cases.
func TestRatioIsWithinARound(t *testing.T) {
	g := Group{Cases: []Case{scripted("ours", 100, 20, 30), scripted("theirs", 50, 10, 10)},
		Claims: []Claim{{Peer: "theirs", Target: 2}}}
	r, err := g.run(3, true)
	if err != nil {
		t.Fatal(err)
	}
	if v := r.Verdicts[0]; v.Ratio != 2 || v.Min != 2 || v.Max != 3 || !v.Met || v.Tickslot != 30 || v.PeerValue != 10 {
		t.Errorf("%+v", v)
	}
	if r.Control != (spread{1, 1, 1}) {
		t.Errorf("the control of a script is %v", r.Control)
	}
}

// Fails when a lower value counts as worse where lower is better, or the other way round, or when a
// bound is not enforced.
func TestVerdicts(t *testing.T) {
	cases := []Case{scripted("ours", 10), scripted("theirs", 80)}
	for _, c := range []struct {
		name  string
		less  bool
		claim Claim
		ratio float64
		met   bool
	}{
		{"more is better", false, Claim{Peer: "theirs", Target: 1}, 0.125, false},
		{"less is better", true, Claim{Peer: "theirs", Target: 8}, 8, true},
		{"less, but not by so much", true, Claim{Peer: "theirs", Target: 9}, 8, false},
		{"at most", true, Claim{Peer: "theirs", Target: 1.3, AtMost: true}, 0.125, true},
		{"a bound that is kept", true, Claim{Bound: 20, Target: 1, AtMost: true}, 0.5, true},
		{"a bound that is not", true, Claim{Key: "twice", Bound: 16, Target: 1, AtMost: true}, 1.25, false},
		{"fires nothing", true, Claim{Peer: "theirs", Target: 1, OnTime: true}, 8, false},
	} {
		r, err := Group{Less: c.less, Cases: cases, Claims: []Claim{c.claim}}.run(2, true)
		if err != nil {
			t.Fatal(err)
		}
		if v := r.Verdicts[0]; v.Ratio != c.ratio || v.Met != c.met {
			t.Errorf("%s: ratio %v, met %v; want %v, %v", c.name, v.Ratio, v.Met, c.ratio, c.met)
		}
	}
	alone, err := Group{NoControl: true, Cases: cases, Claims: []Claim{{Bound: 20, Target: 1}}}.run(2, true)
	if err != nil {
		t.Fatal(err)
	}
	// Fails when a control that was not measured counts as one outside the limits.
	if note := alone.Verdicts[0].Note; note != "" {
		t.Error(note)
	}
	for _, claim := range []Claim{{Peer: "nobody", Target: 1}, {Key: "nothing", Bound: 1, Target: 1}} {
		if _, err := (Group{Cases: cases, Claims: []Claim{claim}}).run(2, true); err == nil {
			t.Errorf("a claim about what was not measured: %+v", claim)
		}
	}
}

// Fails when a case that fails or does nothing counts as fast.
func TestNothingIsNoWin(t *testing.T) {
	for name, f := range map[string]*fake{
		"did nothing":     {values: []float64{1e9}},
		"measured 0":      {values: []float64{0}, did: 1},
		"measured +Inf":   {values: []float64{math.Inf(1)}, did: 1},
		"measured NaN":    {values: []float64{math.NaN()}, did: 1},
		"a real failure ": {values: []float64{1}, did: 1, err: errors.New("a real failure ")},
	} {
		g := Group{Name: "g", Cases: []Case{{Name: "ours", Open: func() (runner, error) {
			return f, nil
		}}, scripted("theirs", 1)}, Claims: []Claim{{Peer: "theirs", Target: 1}}}
		_, err := g.run(2, true)
		if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "ours") {
			t.Errorf("%s: got %v", name, err)
			continue
		}
		if f.closed == 0 {
			t.Errorf("%s: it was not closed", name)
		}
		if v := g.failed(err).Verdicts; len(v) != 1 || v[0].Met || v[0].Note == "" {
			t.Errorf("%s: verdicts %+v", name, v)
		}
	}
}

// Fails when cycles accept a case that its server knows nothing of, that has no proof, or that is
// granted a full lock.
func TestCyclesWantProof(t *testing.T) {
	var commands float64
	server := proof{count: func() (float64, error) { return commands, nil }, attempt: 1, grant: 1}
	nothing := func() error { return nil }
	lazy := func(int) (func() error, error) { return nothing, nil }
	honest := func(int) (func() error, error) {
		commands++
		return func() error { commands++; return nil }, nil
	}
	busy := func(int) (func() error, error) { commands++; return nil, errBusy }
	calls := 0 // the first call is not measured
	failing := func(int) (func() error, error) {
		if calls++; calls > 1 {
			return nil, errors.New("connection refused")
		}
		return nothing, nil
	}
	releases := 0
	unreleased := func(int) (func() error, error) {
		commands += 2
		return func() error {
			if releases++; releases > 1 {
				return errors.New("it was lost")
			}
			return nil
		}, nil
	}
	for _, c := range []struct {
		name string
		c    cycles
		want string // expected error, or ""
	}{
		{"honest", cycles{take: honest, proof: server}, ""},
		{"does nothing", cycles{take: lazy, proof: server}, "the server knows of 0"},
		{"no proof", cycles{take: lazy, proof: proof{count: server.count}}, "no proof"},
		{"always busy", cycles{take: busy, proof: server}, "nothing was granted"},
		{"busy as expected", cycles{take: busy, proof: server, allHeld: true, value: medianTime}, ""},
		{"granted though full", cycles{take: honest, proof: server, allHeld: true}, "though every slot is held"},
		{"fails", cycles{take: failing, proof: server}, "connection refused"},
		{"release fails", cycles{take: unreleased, proof: server}, "it was lost"},
	} {
		c.c.workers = 1
		s, err := c.c.measure(5 * time.Millisecond)
		switch {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		case c.want == "" && !(s.Did > 0 && s.Value > 0):
			t.Errorf("%s: %+v", c.name, s)
		}
	}
}

// Fails when a worker first contacts the server during the measurement, or when all are warmed up
// before each round.
func TestEachWorkerIsWarmedUpOnce(t *testing.T) {
	const workers = 5
	var calls [workers]atomic.Int32
	c := &cycles{workers: workers, take: func(w int) (func() error, error) { calls[w].Add(1); return nil, errBusy }}
	for round := range 3 {
		if err := c.warmUp(); err != nil {
			t.Fatal(err)
		}
		for w := range calls {
			if n, want := int(calls[w].Load()), 1; w > 0 && n != want {
				t.Errorf("round %d: worker %d was warmed up %d times", round, w, n)
			}
		}
	}
	if n := calls[0].Load(); n != 3 {
		t.Errorf("the first worker was warmed up %d times, and there were 3 rounds", n)
	}
}

// Fails when a burst includes the time of the releases, does not wait for the last answer, or
// accepts a case that got fewer locks than it asked for, or whose server counted no commands.
func TestBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers = 4
		var commands atomic.Int64
		known := proof{count: func() (float64, error) { return float64(commands.Load()), nil }, attempt: 1, grant: 1}
		take := func(w int) (func() error, error) {
			time.Sleep(time.Duration(w+1) * time.Millisecond)
			commands.Add(1)
			return func() error { time.Sleep(time.Second); commands.Add(1); return nil }, nil
		}
		s, err := burst{&cycles{workers: workers, take: take, proof: known}}.measure(5 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if s.Value != workers || s.Did != 5*workers {
			t.Errorf("%v ms, %v attempts, want %d ms, %d attempts", s.Value, s.Did, workers, 5*workers)
		}
		nobody := proof{count: func() (float64, error) { return 0, nil }, attempt: 1, grant: 1}
		if _, err := (burst{&cycles{workers: workers, take: take, proof: nobody}}).measure(time.Second); err == nil ||
			!strings.Contains(err.Error(), "knows of 0") {
			t.Errorf("without the server: %v", err)
		}
		busy := func(w int) (func() error, error) {
			if w == 0 {
				return nil, errBusy
			}
			return take(w)
		}
		if _, err := (burst{&cycles{workers: workers, take: busy, proof: known}}).measure(time.Second); err == nil ||
			!strings.Contains(err.Error(), "3 of 4 were granted") {
			t.Errorf("one was refused: %v", err)
		}
	})
}

// Fails when cases that load the machine while open are open at the same time or stay open, or when
// rounds do not take turns.
func TestSharing(t *testing.T) {
	const rounds = 3
	for _, c := range []struct {
		sharing sharing
		order   string // of two cases, without a control
		opened  int    // times each case is opened
	}{
		{inTurns, "ab ba ab", 1},
		{reopened, "ab ba ab", rounds},
		{caseByCase, "aaa bbb", 1},
	} {
		var log []string
		opened := map[string]int{}
		var open, most int
		var runners []*fake
		one := func(name string) Case {
			return Case{Name: name, Open: func() (runner, error) {
				opened[name]++
				open++
				most = max(most, open)
				f := &fake{values: []float64{1}, did: 1, log: &log, name: name}
				runners = append(runners, f)
				return closing{f, &open}, nil
			}}
		}
		if _, err := (Group{Sharing: c.sharing, NoControl: true, Cases: []Case{one("a"), one("b")}}).run(rounds,
			true); err != nil {
			t.Fatal(err)
		}
		if got, want := strings.Join(log, ""), strings.ReplaceAll(c.order, " ", ""); got != want {
			t.Errorf("%d: order %s, want %s", c.sharing, got, want)
		}
		if opened["a"] != c.opened || opened["b"] != c.opened || open != 0 {
			t.Errorf("%d: opened %v, still open %d", c.sharing, opened, open)
		}
		if (c.sharing == inTurns) != (most == 2) {
			t.Errorf("%d: %d were open at once", c.sharing, most)
		}
	}
}

type closing struct {
	*fake
	open *int
}

func (c closing) close() error { *c.open--; return c.fake.close() }

// Fails when a bucket holds wrong values, or is wider than 1/32.
func TestHistogram(t *testing.T) {
	for us := uint64(0); us < 1<<40; us = us*9/8 + 1 {
		i := bucket(us)
		if low, high := lower(i), lower(i+1); us < low || us >= high || float64(high-low) > max(1, float64(low)/32) {
			t.Fatalf("%d µs is in the bucket from %d to %d", us, low, high)
		}
	}
	var h histogram
	for ms := range 1000 {
		h.add(time.Duration(ms) * time.Millisecond)
	}
	if p99 := h.quantile(0.99); p99 < 950 || p99 > 1000 {
		t.Errorf("p99 of 0 … 999 ms is %v ms", p99)
	}
	h.reset()
	if h.quantile(0.5) != 0 {
		t.Error("there is something left")
	}
}

// Fails when a field of the JSON line is renamed, or a value is too long to read.
func TestLineOfJSON(t *testing.T) {
	line, err := json.Marshal(Verdict{Case: "c", Tickslot: 12345.678, Peer: "p", PeerValue: 0.012345678, Unit: "u",
		Ratio: 1.23456789, Target: 1, Met: true, Is: "at least"}.rounded())
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"case":"c","tickslot":12350,"peer":"p","peer_value":0.01235,"unit":"u","ratio":1.235,"target":1,"met":true,"is":"at least","min":0,"max":0,"control":0}`
	if string(line) != want {
		t.Errorf("got  %s\nwant %s", line, want)
	}
}
