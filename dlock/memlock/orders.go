package memlock

import (
	"context"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// orders is what people have ordered for a name. Its zero value: nothing.
type orders struct {
	version int64
	pause   dlock.Order
	until   time.Time // of the pause, or of a limit of 0; it stays when that is over
	limit   *dlock.Limit
	trigger dlock.Order
	at      time.Time // of the trigger
}

// slots is the limit that was ordered, 0 if there is none to keep to.
func (o *orders) slots() int {
	if o.limit == nil {
		return 0
	}
	return o.limit.Slots
}

// refuse returns the refusal of a request that an order forbids.
func (o *orders) refuse(req dlock.Request, now time.Time) *dlock.NotAcquiredError {
	no := &dlock.NotAcquiredError{Name: req.Name, Reason: dlock.Paused, Slots: req.Slots}
	switch {
	case now.Before(o.until):
		no.Order, no.Ends = o.pause, o.until.Sub(now)
	case o.limit != nil && o.limit.Slots == 0:
		no.Order = o.limit.Order
	case req.Tick != nil && req.Tick.Missed.Before(o.until) && !req.Tick.Missed.IsZero():
		no.Order = o.pause
	default:
		return nil
	}
	return no
}

// Order implements dlock.Controller.
func (s *Store) Order(ctx context.Context, name string, change dlock.Change) error {
	if err := checkOrder(ctx, name, change.Validate()); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	o := &s.entry(key{name: name}).orders
	o.version = max(o.version+1, now.UnixMicro())
	if p := change.Pause; p != nil {
		if p.For > 0 {
			o.pause, o.until = p.Order, now.Add(p.For)
		} else if now.Before(o.until) {
			o.pause, o.until = p.Order, now
		}
	}
	if l := change.Limit; l != nil {
		if o.limit != nil && o.limit.Slots == 0 && l.Slots != 0 && o.until.Before(now) {
			o.pause, o.until = l.Order, now
		}
		o.limit = nil
		if l.Slots >= 0 {
			limit := *l
			o.limit = &limit
		}
	}
	if change.Trigger != nil {
		o.trigger, o.at = *change.Trigger, time.UnixMicro(o.version) // no earlier than the last, though the clock may be
	}
	return nil
}

// Orders implements dlock.Controller.
func (s *Store) Orders(ctx context.Context, names ...string) ([]dlock.Orders, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	list := make([]dlock.Orders, len(names))
	for i, name := range names {
		list[i].Name = name
		e := s.names[key{name: name}]
		if e == nil {
			continue
		}
		o := e.orders
		list[i].Version = o.version
		if now.Before(o.until) {
			list[i].Pause = &dlock.Pause{Order: o.pause, For: o.until.Sub(now)}
		}
		if o.limit != nil {
			limit := *o.limit
			list[i].Limit = &limit
		}
		if !o.at.IsZero() {
			list[i].Trigger = &dlock.Trigger{Order: o.trigger, At: o.at, Ago: max(0, now.Sub(o.at))}
		}
		if e.tick != 0 {
			list[i].Tick, list[i].Holder = time.UnixMicro(e.tick), e.claimer
		}
	}
	return list, nil
}

// Revoke implements dlock.Controller.
func (s *Store) Revoke(ctx context.Context, name string, slot int, fence dlock.Fence, order dlock.Order) error {
	if err := checkOrder(ctx, name, order.Validate()); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.names[key{name: name}]
	if e == nil || slot < 0 || slot >= len(e.slots) || e.slots[slot].fence != fence || !e.slots[slot].held(time.Now()) {
		return dlock.ErrNotHeld
	}
	if e.slots[slot].revoked == nil { // who was first is told
		e.slots[slot].revoked = &order
	}
	return nil
}

func checkOrder(ctx context.Context, name string, err error) error {
	if err == nil {
		err = dlock.CheckName(name)
	}
	if err == nil {
		err = ctx.Err()
	}
	return err
}
