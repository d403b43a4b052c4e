package sqllock

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock/internal/store"
)

// originText returns a cause as the table stores it: JSON in ASCII, so that no character set of a
// connection changes it.
func originText(o driver.Cause) string {
	text, _ := json.Marshal(o) // marshaling two strings cannot fail
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

// readOrigin parses a text of originText. It uses any other text, which may have been written by
// hand, as By.
func readOrigin(text string) (o driver.Cause) {
	if json.Unmarshal([]byte(text), &o) != nil {
		return driver.Cause{By: text}
	}
	return o
}

// Update implements driver.Controller.
func (s *Store) Update(ctx context.Context, name string, c driver.Update) error {
	resource, err := s.controlled(ctx, name, c.Validate())
	if err != nil {
		return err
	}
	row := store.Update{Resource: resource}
	switch {
	case c.Pause != nil:
		left := micros(c.Pause.For)
		row.Pause, row.PauseOrigin = &left, originText(c.Pause.Cause)
	case c.Resume != nil:
		row.Pause, row.PauseOrigin = new(int64), originText(*c.Resume)
	}
	switch {
	case c.Limit != nil:
		row.Limit, row.LimitOrigin = &c.Limit.Slots, originText(c.Limit.Cause)
	case c.ResetLimit != nil:
		asDeclared := -1
		row.Limit, row.LimitOrigin = &asDeclared, originText(*c.ResetLimit)
	}
	if c.Trigger != nil {
		row.TriggerOrigin = originText(*c.Trigger)
	}
	if v := c.Value; v != nil {
		row.Value, row.IfVersion = v.Text, &v.Version
	}
	done, err := s.db.Update(ctx, row)
	switch {
	case err != nil:
		return explain(err)
	case !done:
		return driver.ErrChanged
	}
	return nil
}

// Value implements driver.Controller.
func (s *Store) Value(ctx context.Context, name string) (v driver.ValueState, err error) {
	resource, err := s.controlled(ctx, name, nil)
	if err != nil {
		return v, err
	}
	rows, err := s.inspect(ctx, []string{resource}, true)
	if err != nil {
		return v, err
	}
	for _, r := range rows {
		if r.Resource == resource && r.Version > 0 {
			v = driver.ValueState{Text: r.Value, Version: r.Version, At: time.UnixMicro(r.Clock)}
		}
	}
	return v, nil
}

func (s *Store) inspect(ctx context.Context, resources []string, values bool) (rows []store.Control, err error) {
	answer, err := s.db.Inspect(ctx, store.AsJSON(resources), values)
	if err != nil {
		return nil, explain(err)
	}
	if err := json.Unmarshal([]byte(answer), &rows); err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrAnswer, err)
	}
	return rows, nil
}

// controlled returns the resource_name that stores the overrides of a name. It is the resource_name
// of the name's semaphore.
func (s *Store) controlled(ctx context.Context, name string, err error) (string, error) {
	if err == nil {
		err = s.Check()
	}
	if err == nil {
		err = driver.CheckName(name)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return "", err
	}
	return s.resource(name, 1)
}

// Inspect implements driver.Controller.
func (s *Store) Inspect(ctx context.Context, names ...string) ([]driver.ControlState, error) {
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
	rows, err := s.inspect(ctx, resources, false)
	if err != nil {
		return nil, err
	}
	known := make(map[string]store.Control, len(rows))
	for _, r := range rows {
		known[r.Resource] = r
	}
	list := make([]driver.ControlState, len(names))
	for i, name := range names {
		list[i] = stateOf(known[resources[i]], name)
	}
	return list, nil
}

// stateOf converts the row of a name.
func stateOf(r store.Control, name string) driver.ControlState {
	o := driver.ControlState{Name: name, Version: r.Version}
	if r.PauseLeft > 0 {
		o.Pause = &driver.Pause{Cause: readOrigin(r.PauseOrigin), For: duration(r.PauseLeft)}
	}
	if r.Limit != nil {
		o.Limit = &driver.LimitOverride{Cause: readOrigin(r.LimitOrigin), Slots: *r.Limit}
	}
	if r.TriggeredAt != nil {
		o.Trigger = &driver.Trigger{Cause: readOrigin(r.TriggerOrigin), At: time.UnixMicro(*r.TriggeredAt),
			Age: duration(r.TriggerAge)}
	}
	if r.Tick != nil {
		o.LastTick, o.ClaimedBy = time.UnixMicro(*r.Tick), driver.Holder{Host: r.Host, PID: r.PID, ID: r.ID}
		o.LastTickAhead = *r.Tick > r.Clock+driver.MaxTickAhead.Microseconds()
	}
	return o
}

// Revoke implements driver.Controller.
func (s *Store) Revoke(ctx context.Context, name string, slot int, fence driver.Fence, by driver.Cause) error {
	resource, err := s.controlled(ctx, name, by.Validate())
	if err != nil {
		return err
	}
	if slot < 0 || slot >= driver.MaxSlots {
		return driver.ErrNotHeld
	}
	held, err := s.db.Revoke(ctx, resource, slot, int64(fence), originText(by))
	switch {
	case err != nil:
		return explain(err)
	case !held:
		return driver.ErrNotHeld
	}
	return nil
}
