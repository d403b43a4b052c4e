package timer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tickslot/tickslot/schedule"
)

// A round of a Manager has two halves: ask calls the user's code, in a goroutine of its own because
// that may hang, and apply changes the timers. Nothing else happens to the Manager meanwhile.

// A managed is a timer of a Manager, or what a row will make one of.
type managed[Row comparable] struct {
	row   Row
	entry *entry // its timer; nil: there is none
	fault error  // why the row did not become a timer
	twice bool   // other rows have its name
	told  string // the fault that was logged
	round uint64 // the latest in which its row was there
	next  *made[Row]
}

// A made is what a row that is new, has changed, or had a fault was made into.
type made[Row comparable] struct {
	row   Row
	timer Timer
	err   error
}

// An answer is what a round has found out.
type answer[Row comparable] struct {
	changed  []string // timers that have a next
	nameless []error
	err      error // a roundError; nil: the rows were read
}

// ask reads the rows, and makes timers of those that need it.
func (m *Manager[Row]) ask(ctx context.Context, to chan<- answer[Row]) {
	a := answer[Row]{err: newRoundError(errors.New("its Rows, or a Timer, called runtime.Goexit"))}
	defer func() {
		if p := recover(); p != nil {
			a = answer[Row]{err: newRoundError(fmt.Errorf("its Rows panicked: %v", p))}
		}
		to <- a
	}()
	rows, err := m.Rows(ctx)
	if err != nil {
		a.err = newRoundError(err)
		return
	}
	m.round++
	if m.timers == nil {
		m.timers = make(map[string]*managed[Row], len(rows))
	}
	var found answer[Row]
	for i, row := range rows {
		if err := m.look(row, &found); err != nil {
			found.nameless = append(found.nameless, fmt.Errorf("timer: row %d of a Manager: %w", i, err))
		}
	}
	for _, name := range found.changed {
		if next := m.timers[name].next; next != nil {
			next.timer, next.err = m.timerOf(next.row)
			next.timer.Name = name
		}
	}
	a = found
}

// look compares a row with the one that its timer was made of.
func (m *Manager[Row]) look(row Row, found *answer[Row]) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("its Name, or a comparison, panicked: %v", p)
		}
	}()
	name := m.Name(row)
	t := m.timers[name]
	if t == nil {
		t = &managed[Row]{}
		m.timers[name] = t
	}
	same := t.row == row
	if t.round == m.round {
		t.twice = true
		if same && t.entry != nil { // this is the one that it has had
			t.next = nil
		}
		return nil
	}
	t.round, t.twice, t.next = m.round, false, nil
	if !same || t.needsTimer() {
		t.next = &made[Row]{row: row}
		found.changed = append(found.changed, name)
	}
	return nil
}

// needsTimer reports whether a row that has not changed has to be made into a timer: it had a
// fault, or somebody has removed its timer, which has not just come to its end.
func (t *managed[Row]) needsTimer() bool {
	if t.entry == nil || t.fault != nil {
		return true
	}
	t.entry = t.entry.latest()
	if !t.entry.gone() {
		return false
	}
	s := t.entry.timer.Schedule
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

// apply changes the timers, and returns the faults.
func (m *Manager[Row]) apply(a answer[Row]) error {
	s, removed, updated := m.Scheduler, 0, 0
	if phase := s.registry.current(); phase == draining || phase == stopped {
		return errShuttingDown
	}
	for name, t := range m.timers {
		if t.round == m.round {
			continue
		}
		delete(m.timers, name)
		if t.entry == nil {
			continue
		}
		if _, err := newRegistrar(s).remove(name, t.entry); err == nil {
			removed++
		}
	}
	var added []*entry
	for _, name := range a.changed {
		t := m.timers[name]
		if t.next == nil {
			continue
		}
		was := t.entry
		t.take(s, name)
		switch {
		case t.fault != nil || t.entry == was:
		case was != nil && was.latest() == t.entry:
			updated++
			logSettings(s.log, slog.LevelDebug, "timer: updated", t.entry, s.session != nil)
		default:
			added = append(added, t.entry)
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

// take puts the timer that a row was made into in the place of the one that there is.
func (t *managed[Row]) take(s *Scheduler, name string) {
	next := t.next
	t.next, t.fault = nil, next.err
	if t.fault != nil {
		t.fault = fmt.Errorf("timer %.60q: %w", name, t.fault)
		return
	}
	var e *entry
	err := error(ErrUnknown)
	if t.entry != nil && !t.entry.removed() {
		e, err = newRegistrar(s).replace(next.timer, t.entry)
	}
	if err != nil && matches(err, ErrUnknown) { // new, or somebody has removed it
		var entries []*entry
		if entries, err = s.register([]Timer{next.timer}); err == nil {
			e = entries[0]
		}
	}
	if err != nil {
		t.fault = err
		return
	}
	t.entry, t.row = e, next.row
}

// logFaults logs the faults that are new, and the ends of others.
func (m *Manager[Row]) logFaults(nameless []error) {
	if len(nameless) != m.nameless && len(nameless) > 0 {
		m.Scheduler.log.Warn("timer: rows without a name are left out", "rows", len(nameless), "first", nameless[0])
	}
	m.nameless = len(nameless)
	for name, t := range m.timers {
		now := ""
		if fault := t.faultOf(name); fault != nil {
			now = fault.Error()
		}
		switch {
		case now == t.told:
			continue
		case now == "":
			m.Scheduler.log.laterFew(&m.few, slog.LevelInfo, "timer: the row of a timer has no fault any more",
				"timer", name)
		default:
			m.Scheduler.log.laterFew(&m.few, slog.LevelWarn, "timer: the row of a timer has a fault; the timer stays "+
				"as it is", "timer", name, "err", now)
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
