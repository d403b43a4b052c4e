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

// A change is a dlock.Change as a database takes it.
type change struct {
	resource string
	pause    *int64 // µs from now; 0: resume; nil: as it is
	paused   string // by whose order: see orderText
	limit    *int   // slots; -1: as requests declare; nil: as it is
	limited  string
	trigger  string // ask for a run; "": do not
}

// ordersJSON is what a database tells of a name, if it knows it. Times are microseconds.
type ordersJSON struct {
	Resource  string `json:"n"`
	Version   int64  `json:"version"` // 0: nothing was ever ordered
	PauseLeft int64  `json:"left"`    // 0 or less: not paused
	Paused    string `json:"paused"`  // by whose order: see orderText
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
func orderText(o dlock.Order) string {
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
func readOrder(text string) (o dlock.Order) {
	if json.Unmarshal([]byte(text), &o) != nil {
		return dlock.Order{By: text}
	}
	return o
}

// Order implements dlock.Controller.
func (s *Store) Order(ctx context.Context, name string, c dlock.Change) error {
	resource, err := s.ordered(ctx, name, c.Validate())
	if err != nil {
		return err
	}
	row := change{resource: resource}
	if c.Pause != nil {
		left := micros(max(0, c.Pause.For))
		row.pause, row.paused = &left, orderText(c.Pause.Order)
	}
	if c.Limit != nil {
		slots := max(-1, c.Limit.Slots)
		row.limit, row.limited = &slots, orderText(c.Limit.Order)
	}
	if c.Trigger != nil {
		row.trigger = orderText(*c.Trigger)
	}
	if err := s.db.order(ctx, row); err != nil {
		return explain(err)
	}
	return nil
}

// ordered returns the resource that orders for a name are kept with: its semaphore's.
func (s *Store) ordered(ctx context.Context, name string, err error) (string, error) {
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

// Orders implements dlock.Controller.
func (s *Store) Orders(ctx context.Context, names ...string) ([]dlock.Orders, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, nil
	}
	resources := make([]string, len(names))
	for i, name := range names {
		var err error
		if resources[i], err = s.ordered(ctx, name, nil); err != nil {
			return nil, err
		}
	}
	answer, err := s.db.orders(ctx, asJSON(resources))
	if err != nil {
		return nil, explain(err)
	}
	var rows []ordersJSON
	if err := json.Unmarshal([]byte(answer), &rows); err != nil {
		return nil, fmt.Errorf("%w: %w", errAnswer, err)
	}
	known := make(map[string]ordersJSON, len(rows))
	for _, r := range rows {
		known[r.Resource] = r
	}
	list := make([]dlock.Orders, len(names))
	for i, name := range names {
		list[i] = known[resources[i]].orders(name)
	}
	return list, nil
}

func (r ordersJSON) orders(name string) dlock.Orders {
	o := dlock.Orders{Name: name, Version: r.Version}
	if r.PauseLeft > 0 {
		o.Pause = &dlock.Pause{Order: readOrder(r.Paused), For: duration(r.PauseLeft)}
	}
	if r.Limit != nil {
		o.Limit = &dlock.Limit{Order: readOrder(r.Limited), Slots: *r.Limit}
	}
	if r.At != nil {
		o.Trigger = &dlock.Trigger{Order: readOrder(r.Trigger), At: time.UnixMicro(*r.At), Ago: duration(r.Ago)}
	}
	if r.Tick != nil {
		o.Tick, o.Holder = time.UnixMicro(*r.Tick), dlock.Holder{Host: r.Host, PID: r.PID, ID: r.ID}
	}
	return o
}

// Revoke implements dlock.Controller.
func (s *Store) Revoke(ctx context.Context, name string, slot int, fence dlock.Fence, order dlock.Order) error {
	resource, err := s.ordered(ctx, name, order.Validate())
	if err != nil {
		return err
	}
	if slot < 0 || slot >= dlock.MaxSlots {
		return dlock.ErrNotHeld
	}
	held, err := s.db.revoke(ctx, resource, slot, int64(fence), orderText(order))
	switch {
	case err != nil:
		return explain(err)
	case !held:
		return dlock.ErrNotHeld
	}
	return nil
}
