// Package deliveries checks the actions of an outbox's producers, relays and receivers against the
// promise I15. It uses only what they and a watch of the database have logged, and the final
// database. It uses nothing from the library.
//
// It cannot see what a process would have logged at the moment it was killed.
package deliveries

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tickslot/tickslot/proof/torture"
)

// Rules are the promises.
type Rules struct {
	// MaxAttempts is the number of failed attempts after which a message is dead.
	MaxAttempts int
	// Within bounds the time until another relay delivers after the leader has gone. Looks bounds
	// the time until a delivery while all relays work.
	Within, Looks time.Duration
	// Recovers and Begins are as in torture.Wellness.
	Recovers, Begins time.Duration
}

// Figures are the results of an examination. From Lost on, all must be zero.
type Figures struct {
	Changes       int   `json:"changes"` // committed
	RolledBack    int   `json:"rolled_back"`
	Messages      int   `json:"messages"` // committed
	Dispatched    int   `json:"dispatched"`
	Rejected      int   `json:"rejected"`
	Exhausted     int   `json:"exhausted"` // used up their attempts
	Attempts      int   `json:"attempts"`
	Dropped       int   `json:"dropped"` // by receivers, as duplicates
	Timed         int   `json:"fail_overs_timed"`
	SlowestMillis int64 `json:"slowest_fail_over_ms"`
	// Excused is the result of torture.Excused. If it is large, Slow means nothing.
	Excused float64 `json:"excused_by_looks"`
	// Forgotten counts committed changes that were lost with a server because its standby lacked
	// them.
	Forgotten int `json:"lost_with_a_server"`

	Lost      int `json:"lost"`      // neither delivered nor dead according to a sink
	Ghosts    int `json:"ghosts"`    // from a transaction that did not commit
	Doubled   int `json:"doubled"`   // effects
	Overtaken int `json:"overtaken"` // messages that came before an earlier one of their key
	Slow      int `json:"slow"`      // due for too long
	Together  int `json:"together"`  // changes that are only partly in the database
	Uncounted int `json:"uncounted"` // attempts without a record in the database

	Examples []string `json:"examples,omitempty"`
}

// Violations is the sum of the findings that must be zero.
func (f Figures) Violations() int {
	return f.Lost + f.Ghosts + f.Doubled + f.Overtaken + f.Slow + f.Together + f.Uncounted
}

// A change identifies a change, a name a message, and a try an attempt.
type (
	change struct {
		order   string
		version int64
		by      string // of transactions with one number, all but one were rolled back
	}
	name struct {
		change
		index int
	}
	try struct {
		seq     int64
		attempt int
	}
)

func (n name) String() string { return fmt.Sprintf("%s/%d/%d", n.order, n.version, n.index) }

func changeOf(m torture.Message) change { return change{m.Order, m.Version, m.By} }
func nameOf(m torture.Message) name     { return name{changeOf(m), m.Index} }
func tryOf(m torture.Message) try       { return try{m.Seq, m.Attempt} }

// before reports whether a message was appended before another one of its order.
func (n name) before(o name) bool {
	return n.version < o.version || n.version == o.version && n.index < o.index
}

// An examiner has the parsed lines.
type examiner struct {
	Figures
	rules   Rules
	lines   []torture.Line
	changes map[change]int // number of messages per change
	rows    map[name]torture.Message
	tried   map[try]torture.Message
	started map[try][]torture.Line
	said    map[try][]torture.Line
	effects map[name]int
	gone    []torture.Span  // changes committed then may be lost
	lacks   map[change]bool // changes that are lost
}

// Examine checks the lines of all logs.
func Examine(lines []torture.Line, rules Rules) Figures {
	e := &examiner{rules: rules, lines: slices.Clone(lines), changes: map[change]int{},
		rows: map[name]torture.Message{}, tried: map[try]torture.Message{}, started: map[try][]torture.Line{},
		said: map[try][]torture.Line{}, effects: map[name]int{}, lacks: map[change]bool{}}
	slices.SortStableFunc(e.lines, func(a, b torture.Line) int { return cmp.Compare(a.At, b.At) })
	e.read()
	e.forgotten()
	e.committed()
	e.ended()
	e.ghosts()
	e.order()
	e.failOvers()
	return e.Figures
}

func (e *examiner) example(format string, args ...any) {
	if len(e.Examples) < 20 {
		e.Examples = append(e.Examples, fmt.Sprintf(format, args...))
	}
}

func (e *examiner) lost(format string, args ...any) {
	e.Lost++
	e.example("lost: "+format, args...)
}

func (e *examiner) read() {
	for _, l := range e.lines {
		if l.Message == nil {
			continue
		}
		m := *l.Message
		switch l.Kind {
		case torture.Change:
			e.changes[changeOf(m)] = m.Count
			e.Changes++
		case torture.Row:
			e.rows[nameOf(m)] = m
		case torture.Tried:
			e.tried[tryOf(m)] = m
			e.Attempts++
		case torture.Started:
			e.started[tryOf(m)] = append(e.started[tryOf(m)], l)
		case torture.Returned:
			e.said[tryOf(m)] = append(e.said[tryOf(m)], l)
		case torture.Dropped:
			e.Dropped++
		case torture.Effect:
			e.effects[nameOf(m)]++
		case torture.Appended:
			if m.Outcome == torture.RolledBack {
				e.RolledBack++
			}
		}
	}
}

// committed checks that the database has the messages of each change, and all changes whose commit
// a producer logged.
func (e *examiner) committed() {
	for _, l := range e.lines {
		if l.Kind != torture.Appended {
			continue
		}
		_, ok := e.changes[changeOf(*l.Message)]
		switch {
		case l.Message.Outcome == torture.Committed && !ok && !e.lacks[changeOf(*l.Message)]:
			e.lost("change %d of %s, which was committed", l.Message.Version, l.Message.Order)
		case l.Message.Outcome == torture.RolledBack && ok:
			e.Ghosts++
			e.example("change %d of %s is there, which was rolled back", l.Message.Version, l.Message.Order)
		}
	}
	for c, n := range e.changes {
		e.Messages += n
		for i := range n {
			if _, ok := e.rows[name{c, i}]; !ok {
				e.Together++
				e.lost("message %v, whose change is there", name{c, i})
			}
		}
	}
}

// ended checks that each message was delivered, or is dead according to a sink.
func (e *examiner) ended() {
	for n, m := range e.rows {
		last := e.tried[try{m.Seq, m.Attempt}]
		switch {
		case m.State == "dispatched" && e.effects[n] == 0 && !e.effectLost(n, try{m.Seq, m.Attempt}):
			e.lost("message %v is dispatched, and has no effect", n)
		case m.State == "dispatched":
			e.Dispatched++
			if last.Outcome != "ok" {
				e.lost("message %v is dispatched, and its attempt %d has the outcome %q", n, m.Attempt, last.Outcome)
			}
		case m.State == "dead" && last.Outcome == "permanent":
			e.Rejected++
		case m.State == "dead" && last.Outcome == "exhausted" && m.Attempt == e.rules.MaxAttempts:
			e.Exhausted++
		default:
			e.lost("message %v is %s, after %d attempts, of which the last has the outcome %q", n, m.State, m.Attempt,
				last.Outcome)
		}
		for i := 1; i <= m.Attempt; i++ {
			e.attempt(n, try{m.Seq, i}, i == m.Attempt)
		}
	}
}

// needs is the sink result that each outcome requires. A sink that does not return in time has no
// result.
var needs = map[string]string{"ok": torture.Accepted, "permanent": torture.Refused}

// attempt checks that an attempt ended as its sink reported.
func (e *examiner) attempt(n name, t try, last bool) {
	tried, ok := e.tried[t]
	if !ok {
		e.Uncounted++
		e.example("of attempt %d of message %v the database has nothing", t.attempt, n)
		return
	}
	if !last && tried.Outcome != "transient" {
		e.lost("attempt %d of message %v has the outcome %q, and others follow", t.attempt, n, tried.Outcome)
	}
	by := func(host string) func(torture.Line) bool { // a row's number may be reused
		return func(l torture.Line) bool { return l.Host == host && nameOf(*l.Message) == n }
	}
	if !slices.ContainsFunc(e.started[t], by(tried.Node)) {
		e.lost("attempt %d of message %v has the outcome %q, and no sink of %s was called", t.attempt, n, tried.Outcome,
			tried.Node)
		return
	}
	want := needs[tried.Outcome]
	if want != "" && !slices.ContainsFunc(e.said[t], func(l torture.Line) bool {
		return by(tried.Node)(l) && l.Message.Outcome == want
	}) {
		e.lost("attempt %d of message %v has the outcome %q, which its sink on %s has not said", t.attempt, n,
			tried.Outcome, tried.Node)
	}
}

// ghosts finds messages and effects of nonexistent changes, and repeated effects.
func (e *examiner) ghosts() {
	seen := map[name]bool{}
	ghost := func(what string, n name) {
		if count, ok := e.changes[n.change]; ok && n.index < count || seen[n] || e.lacks[n.change] {
			return
		}
		seen[n] = true
		e.Ghosts++
		e.example("%s message %v, whose change was rolled back", what, n)
	}
	for n := range e.rows {
		ghost("there is", n)
	}
	for n, times := range e.effects {
		ghost("there is an effect of", n)
		if times > 1 {
			e.Doubled += times - 1
			e.example("%d effects of message %v", times, n)
		}
	}
	for _, lines := range e.started {
		for _, l := range lines {
			ghost("somebody has delivered", nameOf(*l.Message))
		}
	}
}

// order checks that no message came before an earlier one of its key was accepted, and that effects
// are in order. A dead message may take effect later, if its sink did not return in time.
func (e *examiner) order() {
	accepted := map[name]bool{}
	waiting := map[string][]name{} // by key: appended and not accepted
	for n, m := range e.rows {
		if m.Keyed && m.State != "dead" {
			waiting[n.order] = append(waiting[n.order], n)
		}
	}
	for _, list := range waiting {
		slices.SortFunc(list, func(a, b name) int {
			return cmp.Or(cmp.Compare(a.version, b.version), cmp.Compare(a.index, b.index))
		})
	}
	latest := map[string]name{}
	blamed := map[name]bool{} // reported once
	for _, l := range e.lines {
		if l.Message == nil || !l.Message.Keyed || e.lacks[changeOf(*l.Message)] {
			continue
		}
		n := nameOf(*l.Message)
		switch {
		case l.Kind == torture.Started:
			list := waiting[n.order]
			for len(list) > 0 && accepted[list[0]] {
				list = list[1:]
			}
			waiting[n.order] = list
			if len(list) > 0 && list[0].before(n) && !blamed[n] {
				blamed[n] = true
				e.Overtaken++
				e.example("message %v was delivered by %s before %v was accepted", n, l.Host, list[0])
			}
		case l.Kind == torture.Returned && l.Message.Outcome == torture.Accepted:
			accepted[n] = true
		case l.Kind == torture.Effect && e.rows[n].State != "dead":
			if n.before(latest[n.order]) {
				e.Overtaken++
				e.example("the effect of message %v came after that of %v", n, latest[n.order])
				continue
			}
			latest[n.order] = n
		}
	}
}
