package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// A Case is one implementation in a group's comparison.
type Case struct {
	Name     string
	Open     func() (runner, error)
	FullOnly bool // not measured with -short: no target depends on it
}

// A runner is a case that has been set up and can be measured repeatedly.
type runner interface {
	measure(window time.Duration) (sample, error)
	close() error
}

// A sample is the result of a case in one round.
type sample struct {
	Value float64            // in the unit of the group
	Did   float64            // number of operations; 0 is an error
	Extra map[string]float64 // further figures
	Error string             `json:",omitempty"` // of a case in another process
}

// sharing says how the cases of a group share the machine.
type sharing uint8

const (
	// inTurns opens all cases once, and measures one after the other in each round.
	inTurns sharing = iota
	// reopened opens, measures and closes each case in each round. It is for cases that load the
	// machine while they are open.
	reopened
	// together opens all cases once, and measures them at the same time. Each case is in its own
	// process or hardly loads the machine.
	together
	// caseByCase opens a case, measures it in all rounds, and closes it before it opens the next.
	// It is for cases where reopened would take too long.
	caseByCase
)

// A Group compares cases. The first is tickslot, unless a claim says otherwise.
type Group struct {
	Name      string
	Unit      string
	Less      bool // lower is better
	Sharing   sharing
	Window    time.Duration
	Rounds    int  // maximum for groups with long windows; 0: no maximum
	NoControl bool // do not measure tickslot a second time
	Cases     []Case
	Claims    []Claim
	Begin     func() error // called before the cases are opened
	Plot      string       // the plot for the figures; see plots.go
}

// A Claim is a figure with a target: a ratio to another case, or a bound. Without a target, it is a
// published ratio.
type Claim struct {
	Name   string
	Ours   string  // default: the first case
	Peer   string  // "": compare with Bound
	Key    string  // a key of Extra; default: the value
	Unit   string  // default: the group's
	Bound  float64 // in the unit
	Target float64 // of the ratio; 0: none
	AtMost bool    // Target is the most that the ratio of ours to theirs may be; default: the least
	OnTime bool    // also requires that all due ticks fire
}

const again = " (again)"

// believable is the largest deviation from 1, as a factor, of a group's control. Beyond it, the
// group's figures are doubtful.
const believable = 1.25

// leastOnTime is the percentage of due ticks that must fire. In a short window, a few may be
// missing by chance.
const leastOnTime = 95

// A Figure is the result of a case over all rounds.
type Figure struct {
	Case   string
	Value  spread
	Ratio  spread // to the first case; above 1 is better
	Extra  map[string]spread
	values []float64
	extra  map[string][]float64
}

// A Verdict is the result of a claim. The first fields form the line of JSON.
type Verdict struct {
	Case      string  `json:"case"`
	Tickslot  float64 `json:"tickslot"`
	Peer      string  `json:"peer"`
	PeerValue float64 `json:"peer_value"`
	Unit      string  `json:"unit"`
	Ratio     float64 `json:"ratio"`
	Target    float64 `json:"target"`
	Met       bool    `json:"met"`
	// Is says whether the ratio must be at least or at most the target.
	Is      string  `json:"is"`
	Min     float64 `json:"min"`     // of the ratios of the rounds
	Max     float64 `json:"max"`     //
	Control float64 `json:"control"` // the ratio of tickslot to itself; 0: not measured
	Note    string  `json:"note,omitempty"`
}

// A Result is the outcome of a group.
type Result struct {
	Group    Group
	Rounds   int
	Figures  []Figure
	Control  spread // tickslot compared with itself
	Verdicts []Verdict
	Took     time.Duration
	Err      error // why it could not be measured
}

// run measures a group.
func (g Group) run(rounds int, full bool) (Result, error) {
	began := time.Now()
	cases := slices.DeleteFunc(slices.Clone(g.Cases), func(c Case) bool { return c.FullOnly && !full })
	if !g.NoControl {
		cases = append(cases, Case{Name: cases[0].Name + again, Open: cases[0].Open})
	}
	if g.Rounds > 0 {
		rounds = min(rounds, g.Rounds)
	}
	r := Result{Group: g, Rounds: rounds}
	samples, err := g.measure(cases, rounds)
	if err != nil {
		return r, fmt.Errorf("%s: %w", g.Name, err)
	}
	for i, c := range cases {
		f := Figure{Case: c.Name, Extra: map[string]spread{}, extra: map[string][]float64{}}
		for _, s := range samples[i] {
			f.values = append(f.values, s.Value)
			for key, v := range s.Extra {
				f.extra[key] = append(f.extra[key], v)
			}
		}
		f.Value = spreadOf(f.values)
		for key, list := range f.extra {
			f.Extra[key] = spreadOf(list)
		}
		r.Figures = append(r.Figures, f)
	}
	first := r.Figures[0]
	for i := range r.Figures {
		r.Figures[i].Ratio = spreadOf(ratios(r.Figures[i].values, first.values))
	}
	if !g.NoControl {
		r.Control = r.Figures[len(r.Figures)-1].Ratio
	}
	for _, c := range g.Claims {
		v, err := r.judge(c)
		if err != nil {
			return r, fmt.Errorf("%s: %w", g.Name, err)
		}
		r.Verdicts = append(r.Verdicts, v)
	}
	r.Took = time.Since(began)
	return r, nil
}

// failed is the result of a group that could not be measured. None of its claims is met.
func (g Group) failed(err error) Result {
	r := Result{Group: g, Err: err}
	for _, c := range g.Claims {
		r.Verdicts = append(r.Verdicts, Verdict{Case: cmp.Or(c.Name, g.Name), Peer: cmp.Or(c.Peer, "bound"),
			PeerValue: c.Bound, Unit: cmp.Or(c.Unit, g.Unit), Target: c.Target,
			Is: c.is(), Note: "failed: " + err.Error()})
	}
	return r
}

func (c Claim) is() string {
	if c.AtMost {
		return "at most"
	}
	return "at least"
}

// measure returns the samples of each case, by round.
func (g Group) measure(cases []Case, rounds int) (samples [][]sample, err error) {
	if g.Begin != nil {
		if err := g.Begin(); err != nil {
			return nil, err
		}
	}
	samples = make([][]sample, len(cases))
	runners := make([]runner, len(cases))
	defer func() {
		for i, p := range runners {
			if p != nil {
				err = errors.Join(err, named(cases[i], p.close()))
			}
		}
	}()
	if g.Sharing == caseByCase {
		for i, c := range cases {
			if samples[i], err = g.allRounds(c, rounds); err != nil {
				return nil, err
			}
		}
		return samples, nil
	}
	switch g.Sharing {
	case inTurns:
		for i, c := range cases {
			if runners[i], err = c.Open(); err != nil {
				return nil, named(c, err)
			}
		}
	case together:
		if err := atOnce(cases, func(i int) (err error) {
			runners[i], err = cases[i].Open()
			return named(cases[i], err)
		}); err != nil {
			return nil, err
		}
	}
	for round := range rounds {
		order := rotated(len(cases), round)
		if g.Sharing == together {
			got := make([]sample, len(cases))
			if err := atOnce(cases, func(i int) (err error) {
				got[i], err = g.once(cases[i], runners[i])
				return err
			}); err != nil {
				return nil, err
			}
			for i := range cases {
				samples[i] = append(samples[i], got[i])
			}
			continue
		}
		for _, i := range order {
			p := runners[i]
			if g.Sharing == reopened {
				if p, err = cases[i].Open(); err != nil {
					return nil, named(cases[i], err)
				}
			}
			s, err := g.once(cases[i], p)
			if g.Sharing == reopened {
				err = errors.Join(err, named(cases[i], p.close()))
			}
			if err != nil {
				return nil, err
			}
			samples[i] = append(samples[i], s)
		}
	}
	return samples, nil
}

func atOnce(cases []Case, f func(i int) error) error {
	errs := make([]error, len(cases))
	var all sync.WaitGroup
	for i := range cases {
		all.Go(func() { errs[i] = f(i) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// allRounds measures one case in all rounds.
func (g Group) allRounds(c Case, rounds int) (samples []sample, err error) {
	p, err := c.Open()
	if err != nil {
		return nil, named(c, err)
	}
	defer func() { err = errors.Join(err, named(c, p.close())) }()
	for range rounds {
		s, err := g.once(c, p)
		if err != nil {
			return nil, err
		}
		samples = append(samples, s)
	}
	return samples, nil
}

// once measures a case in one round. A case that did nothing is an error.
func (g Group) once(c Case, p runner) (sample, error) {
	s, err := p.measure(g.Window)
	switch {
	case err != nil:
	case s.Error != "":
		err = errors.New(s.Error)
	case !(s.Did > 0):
		err = errors.New("it did nothing")
	case !(s.Value > 0) || math.IsInf(s.Value, 0):
		err = fmt.Errorf("it measured %v", s.Value)
	}
	return s, named(c, err)
}

func named(c Case, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", c.Name, err)
}

func (r Result) figure(name string) (Figure, error) {
	for _, f := range r.Figures {
		if f.Case == name {
			return f, nil
		}
	}
	return Figure{}, fmt.Errorf("a claim is about %q, which was not measured", name)
}

func (f Figure) of(key string) ([]float64, error) {
	if key == "" {
		return f.values, nil
	}
	if list, ok := f.extra[key]; ok {
		return list, nil
	}
	return nil, fmt.Errorf("%s has no figure %q", f.Case, key)
}

func (r Result) judge(c Claim) (Verdict, error) {
	c.Ours, c.Unit, c.Name = cmp.Or(c.Ours, r.Figures[0].Case), cmp.Or(c.Unit, r.Group.Unit),
		cmp.Or(c.Name, r.Group.Name)
	f, err := r.figure(c.Ours)
	if err != nil {
		return Verdict{}, err
	}
	ours, err := f.of(c.Key)
	if err != nil {
		return Verdict{}, err
	}
	v := Verdict{Case: c.Name, Tickslot: median(ours), Peer: c.Peer, Unit: c.Unit, Target: c.Target, Is: c.is(),
		Control: r.Control.Median}
	var all []float64
	if c.Peer == "" {
		v.Peer, v.PeerValue = "bound", c.Bound
		for _, o := range ours {
			all = append(all, o/c.Bound)
		}
	} else {
		peer, err := r.figure(c.Peer)
		if err != nil {
			return Verdict{}, err
		}
		theirs, err := peer.of(c.Key)
		if err != nil {
			return Verdict{}, err
		}
		v.PeerValue = median(theirs)
		if r.Group.Less && !c.AtMost {
			all = ratios(theirs, ours)
		} else {
			all = ratios(ours, theirs)
		}
	}
	s := spreadOf(all)
	v.Ratio, v.Min, v.Max = s.Median, s.Min, s.Max
	v.Met = v.Ratio >= c.Target
	if c.AtMost {
		v.Met = v.Ratio <= c.Target
	}
	if fired := spreadOf(f.extra[onTime]); c.OnTime && !(fired.Median >= leastOnTime) {
		v.Met, v.Note = false, fmt.Sprintf("it fired %.0f %% of what was due", fired.Median)
	}
	if off := max(v.Control, 1/v.Control); v.Control > 0 && off > believable && v.Note == "" {
		v.Note = fmt.Sprintf("tickslot beside itself was %.2f: this run says little", v.Control)
	}
	return v, nil
}
