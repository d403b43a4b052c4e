package caslock

import (
	"context"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/leasestate"
)

// Update implements driver.Controller. The text of a driver.Value may be a few kilobytes shorter
// than the backend's documents.
func (s *Store) Update(ctx context.Context, name string, update driver.Update) error {
	if err := update.Validate(); err != nil {
		return err
	}
	return s.control(ctx, name, func(st *leasestate.State, now leasestate.Now) error { return st.Update(update, now) })
}

// Revoke implements driver.Controller.
func (s *Store) Revoke(ctx context.Context, name string, slot int, fence driver.Fence, by driver.Cause) error {
	if err := by.Validate(); err != nil {
		return err
	}
	return s.control(ctx, name, func(st *leasestate.State, now leasestate.Now) error {
		return st.Revoke(slot, fence, by, now)
	})
}

func (s *Store) control(ctx context.Context, name string, do func(*leasestate.State, leasestate.Now) error) error {
	if err := driver.CheckName(name); err != nil {
		return err
	}
	var answer error
	if err := s.change(ctx, []string{ofSemaphore + name}, func(states []*leasestate.State, now leasestate.Now) {
		answer = do(states[0], now)
	}); err != nil {
		return err
	}
	return answer
}

// Value implements driver.Controller.
func (s *Store) Value(ctx context.Context, name string) (v driver.ValueState, err error) {
	if err := driver.CheckName(name); err != nil {
		return v, err
	}
	err = s.read(ctx, ofSemaphore+name, func(st *leasestate.State, now leasestate.Now) { v = st.Value(now) })
	return v, err
}

// Inspect implements driver.Controller. It reads one document per name, several in parallel.
func (s *Store) Inspect(ctx context.Context, names ...string) ([]driver.ControlState, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	list := make([]driver.ControlState, len(names))
	failed := 0
	for i, err := range inParallel(len(names), func(i int) error {
		return s.read(ctx, ofSemaphore+names[i], func(st *leasestate.State, now leasestate.Now) {
			list[i] = st.Control(names[i], now)
		})
	}) {
		if err != nil {
			failed++
			list[i] = driver.ControlState{Name: names[i], Err: err}
		}
	}
	if failed > 0 && failed == len(names) {
		return nil, list[0].Err
	}
	return list, nil
}
