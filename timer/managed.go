package timer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer/internal/fleet"
)

// A round of a Manager has two halves: ask calls the user's code, and apply changes the timers. A
// round runs in a goroutine of its own, because the user's code may hang or call runtime.Goexit.
// Nothing else uses the Manager's fields meanwhile.

// A managed is what a Manager knows of one name: its row, its timer, and what is wrong with them.
type managed[Row comparable] struct {
	row      Row
	settings *settings // its timer; nil: there is none
	fault    error     // why the row did not become a timer
	twice    bool      // other rows have its name
	told     string    // the fault that was logged
	round    uint64    // the latest in which its row was there
	next     *made[Row]
}

// A made is the result of making a timer of a row that is new, has changed, or had a fault.
type made[Row comparable] struct {
	row      Row
	settings *settings
	isNew    bool // it updates no timer
	first    plan // its first tick, if it is new
	err      error
}

// An answer is what a round has found out.
type answer struct {
	changed  []string // timers that have a next
	nameless []namelessRow
}

// carryOut carries out a round.
func (m *Manager[Row]) carryOut(ctx context.Context, ended chan<- error) {
	var err error
	finished := false
	defer func() {
		if p := recover(); p != nil {
			err = newRoundError(m.locate(fmt.Errorf("its Rows panicked: %v", p)))
		} else if !finished {
			err = newRoundError(m.locate(errors.New("what it called ended with runtime.Goexit")))
		}
		m.making.Store(nil)
		ended <- err
	}()
	var a answer
	if a, err = m.ask(ctx); err == nil {
		err = m.apply(a)
	}
	finished = true
}

// ask reads the rows, and makes timers of those that need it.
func (m *Manager[Row]) ask(ctx context.Context) (a answer, err error) {
	rows, err := m.Rows(ctx)
	if err != nil {
		return a, newRoundError(err)
	}
	m.round++
	if m.timers == nil {
		m.timers = make(map[string]*managed[Row], len(rows))
	}
	for i, row := range rows {
		if err := m.look(row, &a); err != nil {
			a.nameless = append(a.nameless, namelessRow{i, err})
		}
	}
	host := newRegistrar(m.Scheduler)
	began := host.now()
	for _, name := range a.changed {
		if t := m.timers[name]; t.next != nil && t.next.err == nil {
			m.making.Store(&name)
			m.prepare(name, t)
			m.making.Store(nil)
		}
	}
	switch {
	case ctx.Err() != nil:
		return a, newRoundError(context.Cause(ctx)) // it is too late
	case host.now().Before(began):
		return a, newRoundError(errors.New("the clock was set back meanwhile"))
	}
	return a, nil
}

// A namelessRow is a row without a usable name, and why it was left out.
type namelessRow struct {
	row int
	err error
}

func (e namelessRow) Error() string {
	return fmt.Sprintf("timer: row %d of a Manager: %v", e.row, e.err)
}

// look compares a row with the one that its timer was made of.
func (m *Manager[Row]) look(row Row, found *answer) error {
	name, err := m.nameOf(row)
	if err != nil {
		return err
	}
	t := m.timers[name]
	if t == nil {
		t = &managed[Row]{}
		m.timers[name] = t
	}
	same, err := equal(t.row, row)
	if t.round == m.round {
		t.twice = true
		if same && t.settings != nil { // this is the one that it has had
			t.next, t.fault = nil, nil
		}
		return nil
	}
	t.round, t.twice, t.next = m.round, false, nil
	if !same || t.needsTimer() {
		if err != nil {
			err = fmt.Errorf("timer %.60q: %w", name, err)
		}
		t.next = &made[Row]{row: row, err: err}
		found.changed = append(found.changed, name)
	}
	return nil
}

// nameOf calls Name.
func (m *Manager[Row]) nameOf(row Row) (name string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("its Name panicked: %v", p)
		}
	}()
	return m.Name(row), nil
}

// equal compares two rows. That panics if both have, say, a []byte in a field of type any.
func equal[Row comparable](a, b Row) (same bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("its row cannot be compared: %v: let a Row hold numbers and text", p)
		}
	}()
	return a == b, nil
}

// needsTimer reports whether a row that has not changed has to be made into a timer: it had a
// fault, or its timer was removed before the last of its instants had come.
func (t *managed[Row]) needsTimer() bool {
	if t.settings == nil || t.fault != nil {
		return true
	}
	if now := t.settings.entry.settings.Load(); now.registration == t.settings.registration {
		t.settings = now
	}
	if !t.settings.removed() {
		return false
	}
	s := t.settings.timer.Schedule
	if s == nil || !schedule.Ends(s) {
		return true
	}
	next, err := schedule.Next(s, time.Now())
	return err != nil || !next.IsZero()
}

// timerOf makes a row into a timer.
func (m *Manager[Row]) timerOf(row Row) (t Timer, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("Manager.Timer panicked: %v", p)
		}
	}()
	return m.Timer(row)
}

// prepare makes the next timer of a row, with all that calls the user's code.
func (m *Manager[Row]) prepare(name string, t *managed[Row]) {
	g, next := newRegistrar(m.Scheduler), t.next
	made, err := m.timerOf(next.row)
	if err != nil {
		next.err = fmt.Errorf("timer %.60q: %w", name, err)
		return
	}
	made.Name = name
	next.settings, next.first, next.err = g.prepare(made, g.now())
	if next.err == nil && t.isNew() {
		next.settings.entry = newEntry(made)
		next.settings.entry.record.tally = m.Scheduler.metrics.newTally(name)
		next.isNew = true
	}
}

// isNew reports whether a row has no timer: it never had one, or somebody has removed it.
func (t *managed[Row]) isNew() bool { return t.settings == nil || t.settings.removed() }

// apply changes the timers, and returns the faults.
func (m *Manager[Row]) apply(a answer) error {
	s, removed, updated := m.Scheduler, 0, 0
	if phase := s.registry.current(); phase == PhaseDraining || phase == PhaseStopped {
		return errShuttingDown
	}
	for name, t := range m.timers {
		if t.round == m.round {
			continue
		}
		delete(m.timers, name)
		if t.settings == nil {
			continue
		}
		if _, err := newRegistrar(s).remove(name, t.settings.registration); err == nil {
			removed++
		}
	}
	var added []*settings
	for _, name := range a.changed {
		t := m.timers[name]
		if t.next == nil {
			continue
		}
		was := t.settings
		t.take(s, name)
		switch {
		case t.fault != nil || t.settings == was:
		case was != nil && was.registration == t.settings.registration:
			updated++
			logSettings(s.log, slog.LevelDebug, "timer: updated", t.settings, s.session != nil)
		default:
			added = append(added, t.settings)
		}
	}
	logRegistered(s.log, added, s.session != nil)
	if len(added)+updated+removed > 0 {
		s.log.Info("timer: the timers of a Manager have changed", "added", len(added), "updated", updated,
			"removed", removed)
	}
	m.logFaults(a.nameless)
	return m.faults(a.nameless)
}

// take registers the timer that was made of a row, or updates the present one. If the
// present one was removed meanwhile, the next round registers the new one.
func (t *managed[Row]) take(s *Scheduler, name string) {
	next, g := t.next, newRegistrar(s)
	t.next, t.fault = nil, next.err
	if t.fault != nil {
		return
	}
	var err error
	if next.isNew {
		err = g.add([]*settings{next.settings}, []plan{next.first}, map[string]bool{name: true})
	} else if err = g.update(next.settings, t.settings.registration); err != nil && fleet.Matches(err, ErrNoTimer) {
		return
	}
	if t.fault = err; err == nil {
		t.settings, t.row = next.settings, next.row
	}
}

// logFaults logs the faults that are new, and the ends of others.
func (m *Manager[Row]) logFaults(nameless []namelessRow) {
	left := ""
	if len(nameless) > 0 { // where the rows are does not count
		left = fmt.Sprint(len(nameless), nameless[0].err)
	}
	if left != m.nameless && left != "" {
		m.Scheduler.log.Warn("timer: rows without a name are left out", "rows", len(nameless), "first", nameless[0])
	}
	m.nameless = left
	for name, t := range m.timers {
		now := ""
		if fault := t.faultOf(name); fault != nil {
			now = fault.Error()
		}
		switch {
		case now == t.told:
			continue
		case now == "":
			m.Scheduler.log.laterLimited(&m.faultLines, slog.LevelInfo,
				"timer: the row of a timer has no fault any more", "timer", name)
		default:
			m.Scheduler.log.laterLimited(&m.faultLines, slog.LevelWarn,
				"timer: the row of a timer has a fault; the timer stays as it is", "timer", name, "err", now)
		}
		t.told = now
	}
}

// faultOf returns the fault of a row, or that there are several.
func (t *managed[Row]) faultOf(name string) error {
	if t.fault == nil && t.twice {
		return fmt.Errorf("timer %.60q: several rows have this name: one of them counts", name)
	}
	return t.fault
}
