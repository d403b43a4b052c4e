package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// maxFaults is how many faults Err names, and how many faults a round logs at Warn.
const maxFaults = 20

// A managed is the Manager's state for one name: the row, the timer, and their faults.
type managed[Row comparable] struct {
	row        Row
	schedule   schedule.Schedule // the schedule of its timer
	registered bool              // the Manager has registered its timer
	fault      error             // why the row has no timer
	twice      bool              // whether other rows have the same name
	logged     string            // the fault that was last logged
	next       *made[Row]

	rowIn   uint64 // the latest round that had its row
	timerIn uint64 // the latest round at whose start the Scheduler had a timer of this name
}

// A made is the timer that was created from a row that is new, has changed, or had a fault.
type made[Row comparable] struct {
	row   Row
	timer timer.Timer
	err   error
}

// A namelessRow is a row without a usable name, and the reason.
type namelessRow struct {
	row int
	err error
}

func (n namelessRow) Error() string {
	return fmt.Sprintf("manager: row %d: %v", n.row, n.err)
}

// errOver is the error of a round if the Scheduler accepts no more timers.
var errOver = errors.New("manager: the Scheduler is shutting down: its timers stay as they are")

var errGoexit = guard.Goexit("code of a row")

// carryOut runs a round: it gets the rows and their timers, and then changes the Scheduler's
// timers. During the round, no other goroutine uses the Manager's fields.
func (m *Manager[Row]) carryOut(ctx context.Context, ended chan<- error) {
	var result error
	failed := errGoexit // kept if the round calls runtime.Goexit
	defer func() {
		if failed != nil {
			result = newRoundError(m.locate(failed))
		}
		m.making.Store(nil)
		ended <- result
	}()
	failed = guard.Call("round", func() error {
		changed, nameless, err := m.ask(ctx)
		if err == nil {
			err = m.apply(ctx, changed, nameless)
		}
		result = err
		return nil
	})
}

// ask reads the rows, creates timers for the rows that need one, and returns the names of these
// rows.
func (m *Manager[Row]) ask(ctx context.Context) (changed []string, nameless []namelessRow, err error) {
	var rows []Row
	err = guard.Call("function Rows", func() (err error) { rows, err = m.config.Rows(ctx); return err })
	if err != nil {
		return nil, nil, newRoundError(err)
	}
	m.round++
	if m.timers == nil {
		m.timers = make(map[string]*managed[Row], len(rows))
	}
	m.config.Scheduler.RegisteredTimers(func(name string, _, _ int, _ string) {
		if t := m.timers[name]; t != nil {
			t.timerIn = m.round
		}
	})
	for i, row := range rows {
		name, isNext, err := m.look(row)
		switch {
		case err != nil:
			nameless = append(nameless, namelessRow{i, err})
		case isNext:
			changed = append(changed, name)
		}
	}
	for _, name := range changed {
		if next := m.timers[name].next; next != nil && next.err == nil {
			m.making.Store(&name)
			if next.timer, next.err = m.timerOf(next.row); next.err != nil {
				next.err = fmt.Errorf("timer %.60q: %w", name, next.err)
			}
			next.timer.Name = name
			m.making.Store(nil)
		}
	}
	if ctx.Err() != nil { // too late to change the timers
		return nil, nil, newRoundError(context.Cause(ctx))
	}
	return changed, nameless, nil
}

// look compares a row with the row from which its timer was created. isNext means that a timer has
// to be created from this row.
func (m *Manager[Row]) look(row Row) (name string, isNext bool, err error) {
	name, err = m.nameOf(row)
	if err != nil {
		return "", false, err
	}
	t := m.timers[name]
	if t == nil {
		t = &managed[Row]{}
		m.timers[name] = t
	}
	same, err := equal(t.row, row)
	if t.rowIn == m.round {
		t.twice = true
		if same && t.registered { // the timer was created from this row
			t.next, t.fault = nil, nil
		}
		return name, false, nil
	}
	t.rowIn, t.twice, t.next = m.round, false, nil
	if same && !t.needsTimer() {
		return name, false, nil
	}
	if err != nil {
		err = fmt.Errorf("timer %.60q: %w", name, err)
	}
	t.next = &made[Row]{row: row, err: err}
	return name, true, nil
}

func (m *Manager[Row]) nameOf(row Row) (name string, err error) {
	err = guard.Call("function Name", func() error { name = m.config.Name(row); return nil })
	return name, err
}

// equal compares two rows. The comparison panics if, for example, both have a []byte in a field of
// type any.
func equal[Row comparable](a, b Row) (same bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("its row cannot be compared: %v: let a Row hold numbers and text", p)
		}
	}()
	return a == b, nil
}

// needsTimer reports whether an unchanged row needs a new timer, because the row had a fault, or
// because its timer was removed before its last tick.
func (m *managed[Row]) needsTimer() bool {
	if !m.registered || m.fault != nil {
		return true
	}
	if m.timerIn == m.rowIn {
		return false
	}
	if m.schedule == nil || !schedule.Ends(m.schedule) {
		return true
	}
	next, err := schedule.Next(m.schedule, time.Now())
	return err != nil || !next.IsZero()
}

func (m *Manager[Row]) timerOf(row Row) (t timer.Timer, err error) {
	err = guard.Call("function Timer", func() (err error) { t, err = m.config.Timer(row); return err })
	return t, err
}

// apply changes the timers of the Scheduler and returns the faults.
func (m *Manager[Row]) apply(ctx context.Context, changed []string, nameless []namelessRow) error {
	if m.isOver() {
		return errOver
	}
	added, updated, removed := 0, 0, m.removeGone()
	defer func() {
		if added+updated+removed > 0 {
			m.log().Info("manager: timers have changed", "added", added, "updated", updated, "removed", removed)
		}
	}()
	for _, name := range changed {
		t := m.timers[name]
		if t.next == nil {
			continue
		}
		m.making.Store(&name)
		switch isNew := t.take(m.config.Scheduler); {
		case t.fault != nil:
		case isNew:
			added++
		default:
			updated++
		}
		if ctx.Err() != nil {
			return newRoundError(m.locate(context.Cause(ctx)))
		}
		m.making.Store(nil)
	}
	if m.isOver() { // otherwise every row would be faulty
		return errOver
	}
	m.logFaults(nameless)
	return m.faults(nameless)
}

// removeGone removes the timers whose rows are gone, without waiting for their runs.
func (m *Manager[Row]) removeGone() (removed int) {
	ended, end := context.WithCancel(context.Background())
	end()
	for name, t := range m.timers {
		if t.rowIn == m.round {
			continue
		}
		delete(m.timers, name)
		if t.registered && !guard.Is(m.config.Scheduler.Remove(ended, name), timer.ErrNoTimer) {
			removed++
		}
	}
	return removed
}

// take updates the timer of a row to the new one, or registers the new one if there is none.
func (m *managed[Row]) take(s *timer.Scheduler) (isNew bool) {
	next := m.next
	m.next, m.fault = nil, next.err
	if m.fault != nil {
		return false
	}
	// The schedule's own check may return an error whose methods panic.
	m.fault = guard.Call("error of its timer", func() error {
		err := timer.ErrNoTimer
		if m.registered {
			err = s.Update(next.timer)
		}
		if isNew = guard.Is(err, timer.ErrNoTimer); isNew {
			err = s.Register(next.timer)
		}
		return err
	})
	if m.fault == nil {
		m.registered, m.row, m.schedule = true, next.row, next.timer.Schedule
	}
	return isNew
}

// logFaults logs new faults, and faults that no longer exist.
func (m *Manager[Row]) logFaults(nameless []namelessRow) {
	log, lines := m.log(), 0
	left := ""
	if len(nameless) > 0 { // not m.nameless, because the positions of the rows would make it differ
		left = fmt.Sprint(len(nameless), nameless[0].err)
	}
	if left != m.nameless && left != "" {
		log.Warn("manager: rows without a name are left out", "rows", len(nameless), "first", nameless[0])
	}
	m.nameless = left
	for name, t := range m.timers {
		now := ""
		if fault := t.faultOf(name); fault != nil {
			now = fault.Error()
		}
		if now == t.logged {
			continue
		}
		level := slog.LevelWarn
		if lines++; lines > maxFaults {
			level = slog.LevelDebug
		}
		if now == "" {
			log.Log(context.Background(), min(level, slog.LevelInfo),
				"manager: the row of a timer has no fault any more", "timer", name)
		} else {
			log.Log(context.Background(), level, "manager: the row of a timer has a fault; the timer stays as it is",
				"timer", name, "err", now)
		}
		t.logged = now
	}
}

// faults returns the faults of the rows, sorted by name.
func (m *Manager[Row]) faults(nameless []namelessRow) error {
	var errs []error
	for _, row := range nameless {
		errs = append(errs, row)
	}
	for name, t := range m.timers {
		if fault := t.faultOf(name); fault != nil {
			errs = append(errs, fault)
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	if left := len(errs) - maxFaults; left > 0 {
		errs = append(errs[:maxFaults:maxFaults], fmt.Errorf("manager: %d more rows have a fault", left))
	}
	return errors.Join(errs...)
}

// faultOf returns the fault of a row, or an error if several rows have the name.
func (m *managed[Row]) faultOf(name string) error {
	if m.fault == nil && m.twice {
		return fmt.Errorf("timer %.60q: several rows have this name: one of them counts", name)
	}
	return m.fault
}
