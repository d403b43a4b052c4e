package sqllock

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/tickslot/tickslot/dlock"
)

// A change is a dlock.Update as a database takes it.
type updateRow struct {
	resource string
	pause    *int64 // µs from now; 0: resume; nil: as it is
	paused   string // who did it, and why: see originText
	limit    *int   // slots; -1: as requests declare; nil: as it is
	limited  string
	trigger  string // ask for a run; "": do not
}

// ordersJSON is what a database tells of a name, if it knows it. Times are microseconds.
type controlRow struct {
	Resource  string `json:"n"`
	Version   int64  `json:"version"` // 0: nothing was ever ordered
	PauseLeft int64  `json:"left"`    // 0 or less: not paused
	Paused    string `json:"paused"`  // who did it, and why: see originText
	Limit     *int   `json:"limit"`   // null: as requests declare
	Limited   string `json:"limited"`
	At        *int64 `json:"at"`  // of the trigger, since 1970; null: there was none
	Ago       int64  `json:"ago"` // how long ago that was
	Trigger   string `json:"trigger"`
	Tick      *int64 `json:"tick"` // the latest one claimed, since 1970; null: none
	Host      string `json:"host"` // who claimed it last
	PID       int    `json:"pid"`
	ID        string `json:"id"`
}

// orderText is an order as the table keeps it: JSON in ASCII, which no character set of a connection can change.
func originText(o dlock.Origin) string {
	text, _ := json.Marshal(o) // two strings: nothing can be wrong with them
	var b strings.Builder
	for _, r := range string(text) {
		if r < 0x80 {
			b.WriteRune(r)
			continue
		}
		for _, u := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&b, `\u%04x`, u)
		}
	}
	return b.String()
}

// readOrder is the order in a text of orderText, or in one that somebody wrote into the table by hand: that is an order, too.
func readOrigin(text string) (o dlock.Origin) {
	if json.Unmarshal([]byte(text), &o) != nil {
		return dlock.Origin{By: text}
	}
	return o
}

// Update implements dlock.Controller.
func (s *Store) Update(ctx context.Context, name string, c dlock.Update) error {
	resource, err := s.controlled(ctx, name, c.Validate())
	if err != nil {
		return err
	}
	row := updateRow{resource: resource}
	if c.Pause != nil {
		left := micros(max(0, c.Pause.For))
		row.pause, row.paused = &left, originText(c.Pause.Origin)
	}
	if c.Limit != nil {
		slots := max(-1, c.Limit.Slots)
		row.limit, row.limited = &slots, originText(c.Limit.Origin)
	}
	if c.Trigger != nil {
		row.trigger = originText(*c.Trigger)
	}
	if err := s.db.update(ctx, row); err != nil {
		return explain(err)
	}
	return nil
}

// ordered returns the resource that orders for a name are kept with: its semaphore's.
func (s *Store) controlled(ctx context.Context, name string, err error) (string, error) {
	if err == nil {
		err = s.Check()
	}
	if err == nil {
		err = dlock.CheckName(name)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return "", err
	}
	return s.resource(name, 1)
}

// Inspect implements dlock.Controller.
func (s *Store) Inspect(ctx context.Context, names ...string) ([]dlock.ControlState, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, nil
	}
	resources := make([]string, len(names))
	for i, name := range names {
		var err error
		if resources[i], err = s.controlled(ctx, name, nil); err != nil {
			return nil, err
		}
	}
	answer, err := s.db.inspect(ctx, asJSON(resources))
	if err != nil {
		return nil, explain(err)
	}
	var rows []controlRow
	if err := json.Unmarshal([]byte(answer), &rows); err != nil {
		return nil, fmt.Errorf("%w: %w", errAnswer, err)
	}
	known := make(map[string]controlRow, len(rows))
	for _, r := range rows {
		known[r.Resource] = r
	}
	list := make([]dlock.ControlState, len(names))
	for i, name := range names {
		list[i] = known[resources[i]].state(name)
	}
	return list, nil
}

func (r controlRow) state(name string) dlock.ControlState {
	o := dlock.ControlState{Name: name, Version: r.Version}
	if r.PauseLeft > 0 {
		o.Pause = &dlock.Pause{Origin: readOrigin(r.Paused), For: duration(r.PauseLeft)}
	}
	if r.Limit != nil {
		o.Limit = &dlock.Limit{Origin: readOrigin(r.Limited), Slots: *r.Limit}
	}
	if r.At != nil {
		o.Trigger = &dlock.Trigger{Origin: readOrigin(r.Trigger), At: time.UnixMicro(*r.At), Ago: duration(r.Ago)}
	}
	if r.Tick != nil {
		o.LastTick, o.ClaimedBy = time.UnixMicro(*r.Tick), dlock.Holder{Host: r.Host, PID: r.PID, ID: r.ID}
	}
	return o
}

// Revoke implements dlock.Controller.
func (s *Store) Revoke(ctx context.Context, name string, slot int, fence dlock.Fence, by dlock.Origin) error {
	resource, err := s.controlled(ctx, name, by.Validate())
	if err != nil {
		return err
	}
	if slot < 0 || slot >= dlock.MaxSlots {
		return dlock.ErrNotHeld
	}
	held, err := s.db.revoke(ctx, resource, slot, int64(fence), originText(by))
	switch {
	case err != nil:
		return explain(err)
	case !held:
		return dlock.ErrNotHeld
	}
	return nil
}
