package dlocktest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

// controlMistakes are mistakes with overrides and revocations.
var controlMistakes = []mistake{
	{"a pause is ignored", []string{"control/a paused name", "control/are their name's own",
		"missed/not during a pause"}, func(m *mutant) {
		m.changes(func(c *driver.Update) { c.Pause = nil })
	}},
	{"a pause has no end", []string{"control/a pause ends"}, func(m *mutant) {
		m.changes(func(c *driver.Update) {
			if c.Pause != nil {
				c.Pause.For = driver.MaxPause
			}
		})
	}},
	{"a pause ends early", []string{"control/a pause ends"}, func(m *mutant) {
		m.changes(func(c *driver.Update) {
			if c.Pause != nil {
				c.Pause.For /= 2
			}
		})
	}},
	{"a pause cannot be taken back", []string{"control/a paused name", "control/read back"}, func(m *mutant) {
		m.changes(func(c *driver.Update) {
			c.Resume = nil
		})
	}},
	{"a pause ends leases", []string{"control/a pause leaves"}, func(m *mutant) {
		granted := m.remember()
		m.update = func(ctx context.Context, name string, change driver.Update) error {
			if change.Pause != nil {
				for _, g := range granted[name] {
					_, _ = m.Store.Release(ctx, g)
				}
			}
			return m.Store.Update(ctx, name, change)
		}
	}},
	{"a pause counts for the mutex of that name", []string{"control/are their name's own"}, func(m *mutant) {
		m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			if req.Slots == 0 && req.Validate() == nil {
				if list, err := m.Store.Inspect(ctx, req.Name); err == nil && list[0].Pause != nil {
					return driver.Grant{}, &driver.NotAcquiredError{Name: req.Name, Reason: driver.ReasonPaused}
				}
			}
			return m.Store.TryAcquire(ctx, req)
		}
	}},
	{"who paused is not told", []string{"control/a paused name", "control/a limit of nothing",
		"missed/not during a pause", "missed/not under a limit"}, func(m *mutant) {
		m.refusal(func(no *driver.NotAcquiredError) { no.PausedBy = driver.Cause{} })
	}},
	{"a limit is ignored", []string{"control/a limit that was raised", "control/a limit that was lowered",
		"control/a limit of nothing", "control/outlive"}, func(m *mutant) {
		m.changes(func(c *driver.Update) { c.Limit = nil })
	}},
	{"a limit is never more than what is declared", []string{"control/a limit that was raised"}, func(m *mutant) {
		m.slotLimit(func(declared, limit int) int { return min(declared, limit) })
	}},
	{"a lowered limit looks at the number of the slot alone", []string{"control/a limit that was lowered"},
		func(m *mutant) {
			m.slotLimit(func(_, limit int) int { return limit })
		}},
	{"a limit of nothing is no limit", []string{"control/a limit of nothing", "control/read back",
		"missed/not under a limit"}, func(m *mutant) {
		m.changes(func(c *driver.Update) {
			if c.Limit != nil && c.Limit.Slots == 0 {
				c.Limit, c.ResetLimit = nil, &c.Limit.Cause
			}
		})
	}},
	{"a release forgets the overrides", []string{"control/outlive"}, func(m *mutant) {
		m.release = func(ctx context.Context, grants []driver.Grant) ([]driver.Result, error) {
			results, err := m.Store.Release(ctx, grants...)
			for _, g := range grants {
				_ = m.Store.Update(ctx, g.Name, driver.Update{Resume: &ann, ResetLimit: &ann})
			}
			return results, err
		}
	}},
	{"the version of the overrides stays", []string{"control/every answer"}, func(m *mutant) {
		first := make(map[string]int64)
		m.successes(func(req driver.Request, _ error, info *driver.Info) {
			if first[req.Name] == 0 {
				first[req.Name] = info.Version
			}
			info.Version = first[req.Name]
		})
	}},
	{"a heartbeat does not tell of overrides", []string{"control/every answer"}, func(m *mutant) {
		m.extend = func(ctx context.Context, ttl time.Duration, grants []driver.Grant) ([]driver.Result, error) {
			results, err := m.Store.Extend(ctx, ttl, grants...)
			for i := range results {
				results[i].Info.Version = 0
			}
			return results, err
		}
	}},
	{"the overrides of another name", []string{"control/read back"}, func(m *mutant) {
		m.inspect = func(ctx context.Context, names []string) ([]driver.ControlState, error) {
			list, err := m.Store.Inspect(ctx, names...)
			slices.Reverse(list)
			for i := range list {
				list[i].Name = names[i]
			}
			return list, err
		}
	}},
	{"a name twice is told once", []string{"control/read back"}, func(m *mutant) {
		m.inspect = func(ctx context.Context, names []string) ([]driver.ControlState, error) {
			names = slices.Clone(names)
			slices.Sort(names)
			return m.Store.Inspect(ctx, slices.Compact(names)...)
		}
	}},
	{"each update takes the place of all", []string{"control/read back", "control/a trigger has"}, func(m *mutant) {
		m.update = func(ctx context.Context, name string, change driver.Update) error {
			err := m.Store.Update(ctx, name, change)
			if err == nil && change.Trigger == nil {
				m.untriggered(name, true)
			} else if err == nil {
				m.untriggered(name, false)
			}
			return err
		}
	}},
	{"a trigger is always now", []string{"control/a trigger has"}, func(m *mutant) {
		m.inspect = func(ctx context.Context, names []string) ([]driver.ControlState, error) {
			list, err := m.Store.Inspect(ctx, names...)
			for i := range list {
				if t := list[i].Trigger; t != nil {
					t.At, t.Age = time.Now(), 0
				}
			}
			time.Sleep(time.Millisecond) // otherwise a bubble's clock would stand still
			return list, err
		}
	}},
	{"origins put together with quotes", []string{"control/a paused name", "control/read back",
		"control/a trigger has"}, func(m *mutant) {
		cut := func(o *driver.Cause) { o.Note, _, _ = strings.Cut(o.Note, "'") }
		m.changes(func(c *driver.Update) {
			if c.Pause != nil {
				cut(&c.Pause.Cause)
			}
			if c.Trigger != nil {
				cut(c.Trigger)
			}
		})
	}},
	{"any update is accepted", []string{"control/nonsense"}, func(m *mutant) {
		m.update = func(ctx context.Context, name string, change driver.Update) error {
			if change.Validate() != nil {
				return nil
			}
			return m.Store.Update(ctx, name, change)
		}
	}},
	{"who had the tick first is told", []string{"control/who has a tick"}, func(m *mutant) {
		first := make(map[string]driver.Holder)
		m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			g, err := m.Store.TryAcquire(ctx, req)
			if _, known := first[req.Name]; !known && err == nil && req.Tick != nil {
				first[req.Name] = req.Holder
			}
			if no, ok := errors.AsType[*driver.NotAcquiredError](err); ok && no.Reason == driver.ReasonTickTaken {
				no.Holder = first[req.Name]
			}
			return g, err
		}
	}},
	{"who was refused has the tick", []string{"control/who has a tick"}, func(m *mutant) {
		m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			g, err := m.Store.TryAcquire(ctx, req)
			if no, ok := errors.AsType[*driver.NotAcquiredError](err); ok && no.Reason == driver.ReasonTickTaken {
				no.Holder = req.Holder
			}
			return g, err
		}
	}},
	{"a value is set whatever its version", []string{"value/on no other", "value/one of two"}, func(m *mutant) {
		m.update = func(ctx context.Context, name string, change driver.Update) error {
			if v := change.Value; v != nil && change.Validate() == nil {
				is, err := m.Store.Value(ctx, name)
				if err != nil {
					return err
				}
				change.Value = &driver.Value{Text: v.Text, Version: is.Version}
			}
			return m.Store.Update(ctx, name, change)
		}
	}},
	{"a long value is cut", []string{"value/kept"}, func(m *mutant) {
		m.value = func(ctx context.Context, name string) (driver.ValueState, error) {
			v, err := m.Store.Value(ctx, name)
			v.Text = v.Text[:min(len(v.Text), 65_535)]
			return v, err
		}
	}},
	{"a value is lost with another update", []string{"value/on no other"}, func(m *mutant) {
		lost := make(map[string]bool)
		m.update = func(ctx context.Context, name string, change driver.Update) error {
			err := m.Store.Update(ctx, name, change)
			if err == nil {
				lost[name] = change.Value == nil
			}
			return err
		}
		m.value = func(ctx context.Context, name string) (driver.ValueState, error) {
			v, err := m.Store.Value(ctx, name)
			if lost[name] {
				v.Text = ""
			}
			return v, err
		}
	}},
	{"revoke frees the slot", []string{"revoke/the slot stays", "revoke/the holder is told"}, func(m *mutant) {
		granted := m.remember()
		m.revoke = func(ctx context.Context, name string, slot int, fence driver.Fence, by driver.Cause) error {
			err := m.Store.Revoke(ctx, name, slot, fence, by)
			for _, g := range granted[name] {
				if err == nil && g.Slot == slot && g.Fence == fence {
					_, _ = m.Store.Release(ctx, g)
				}
			}
			return err
		}
	}},
	{"a heartbeat forgets who was revoked", []string{"revoke/the holder is told"}, func(m *mutant) {
		m.revoke = func(ctx context.Context, name string, slot int, fence driver.Fence, _ driver.Cause) error {
			_, err := m.held(ctx, name, slot, fence)
			return err
		}
	}},
	{"a heartbeat says lost and not by whom", []string{"revoke/the holder is told"}, func(m *mutant) {
		m.extend = func(ctx context.Context, ttl time.Duration, grants []driver.Grant) ([]driver.Result, error) {
			results, err := m.Store.Extend(ctx, ttl, grants...)
			for i := range results {
				results[i].RevokedBy = nil
			}
			return results, err
		}
	}},
	{"who revoked last is told", []string{"revoke/the holder is told"}, func(m *mutant) { m.revocations(true, false) }},
	{"revoke does not look at the fence", []string{"revoke/the lease that is meant"}, func(m *mutant) {
		m.revoke = func(ctx context.Context, name string, slot int, _ driver.Fence, by driver.Cause) error {
			h, err := m.held(ctx, name, slot, 0)
			if err != nil {
				return err
			}
			return m.Store.Revoke(ctx, name, slot, h.Fence, by)
		}
	}},
	{"revoke of nothing is fine", []string{"revoke/the lease that is meant"}, func(m *mutant) {
		m.revoke = func(ctx context.Context, name string, slot int, fence driver.Fence, by driver.Cause) error {
			if err := m.Store.Revoke(ctx, name, slot, fence, by); !errors.Is(err, driver.ErrNotHeld) {
				return err
			}
			return nil
		}
	}},
	{"what is revoked is still extended", []string{"revoke/ends with"}, func(m *mutant) { m.revocations(false, true) }},
	{"what is revoked is not extended when asked again", []string{"revoke/ends with"}, func(m *mutant) {
		granted := make(map[string]driver.Grant)
		revoked := make(map[driver.Fence]bool)
		m.revoke = func(ctx context.Context, name string, slot int, fence driver.Fence, by driver.Cause) error {
			err := m.Store.Revoke(ctx, name, slot, fence, by)
			revoked[fence] = err == nil
			return err
		}
		m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
			if g, again := granted[req.Token]; again && revoked[g.Fence] {
				return g, nil
			}
			g, err := m.Store.TryAcquire(ctx, req)
			if err == nil {
				granted[req.Token] = g
			}
			return g, err
		}
	}},
}

// changes modifies every update.
func (m *mutant) changes(spoil func(*driver.Update)) {
	m.update = func(ctx context.Context, name string, change driver.Update) error {
		if change.Validate() == nil {
			if p := change.Pause; p != nil {
				clone := *p
				change.Pause = &clone
			}
			if l := change.Limit; l != nil {
				clone := *l
				change.Limit = &clone
			}
			if t := change.Trigger; t != nil {
				clone := *t
				change.Trigger = &clone
			}
			spoil(&change)
		}
		return m.Store.Update(ctx, name, change)
	}
}

// slotLimit replaces the store's limits: it requests another number of slots.
func (m *mutant) slotLimit(slots func(declared, limit int) int) {
	limits := make(map[string]int)
	m.update = func(ctx context.Context, name string, change driver.Update) error {
		switch l := change.Limit; {
		case change.Validate() != nil:
		case l != nil && l.Slots != 0:
			limits[name] = l.Slots
			change.Limit = nil
		case change.ResetLimit != nil:
			limits[name] = 0
			change.ResetLimit = nil
		}
		return m.Store.Update(ctx, name, change)
	}
	m.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
		asked, limit := req.Slots, limits[req.Name]
		if asked > 0 && limit > 0 {
			req.Slots = slots(asked, limit)
		}
		g, err := m.Store.TryAcquire(ctx, req)
		g.Slots, g.Info.SlotLimit = asked, limit
		if no, ok := errors.AsType[*driver.NotAcquiredError](err); ok {
			no.Info.SlotLimit = limit
		}
		return g, as(err, asked)
	}
}

// remember returns the grants by name.
func (m *mutant) remember() map[string][]driver.Grant {
	granted := make(map[string][]driver.Grant)
	m.grant(func(g *driver.Grant) {
		if g.Slots > 0 {
			granted[g.Name] = append(granted[g.Name], *g)
		}
	})
	return granted
}

// untriggered makes the name report no trigger, if gone is true, or report its trigger again.
func (m *mutant) untriggered(name string, gone bool) {
	m.inspect = func(ctx context.Context, names []string) ([]driver.ControlState, error) {
		list, err := m.Store.Inspect(ctx, names...)
		for i := range list {
			if gone && list[i].Name == name {
				list[i].Trigger = nil
			}
		}
		return list, err
	}
}

// held returns the holder of a slot with the given fence, or with any fence.
func (m *mutant) held(ctx context.Context, name string, slot int, fence driver.Fence) (driver.LeaseInfo, error) {
	list, err := m.Store.List(ctx, name, 1)
	if err != nil {
		return driver.LeaseInfo{}, err
	}
	for _, h := range list {
		if h.Slot == slot && (fence == 0 || h.Fence == fence) {
			return h, nil
		}
	}
	return driver.LeaseInfo{}, driver.ErrNotHeld
}

// revocations handles revocations in place of the store. If extends is true, the store still
// extends a revoked lease with each heartbeat.
func (m *mutant) revocations(last, extends bool) {
	revoked := make(map[driver.Fence]driver.Cause)
	m.revoke = func(ctx context.Context, name string, slot int, fence driver.Fence, by driver.Cause) error {
		if err := by.Validate(); err != nil {
			return err
		}
		if _, err := m.held(ctx, name, slot, fence); err != nil {
			return err
		}
		if _, twice := revoked[fence]; !twice || last {
			revoked[fence] = by
		}
		return nil
	}
	m.extend = func(ctx context.Context, ttl time.Duration, grants []driver.Grant) ([]driver.Result, error) {
		results := make([]driver.Result, len(grants))
		for i, g := range grants {
			by, gone := revoked[g.Fence]
			if !gone || extends {
				one, err := m.Store.Extend(ctx, ttl, g)
				if err != nil {
					return nil, err
				}
				results[i] = one[0]
			}
			if gone {
				results[i].Outcome, results[i].RevokedBy = driver.GrantLost, &by
			}
		}
		return results, nil
	}
}

// as makes a refusal state the requested number of slots.
func as(err error, slots int) error {
	if no, ok := errors.AsType[*driver.NotAcquiredError](err); ok {
		no.Slots = slots
		return no
	}
	return err
}
