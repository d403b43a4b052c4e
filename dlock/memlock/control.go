package memlock

import (
	"context"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/leasestate"
)

// Update implements driver.Controller.
func (s *Store) Update(ctx context.Context, name string, update driver.Update) error {
	if err := checkControl(ctx, name, update.Validate()); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state(leasestate.Key{Name: name}).Update(update, s.now())
}

// Inspect implements driver.Controller.
func (s *Store) Inspect(ctx context.Context, names ...string) ([]driver.ControlState, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	list := make([]driver.ControlState, len(names))
	for i, name := range names {
		list[i].Name = name
		if e := s.names[leasestate.Key{Name: name}]; e != nil {
			list[i] = e.Control(name, now)
		}
	}
	return list, nil
}

// Value implements driver.Controller.
func (s *Store) Value(ctx context.Context, name string) (driver.ValueState, error) {
	if err := checkControl(ctx, name, nil); err != nil {
		return driver.ValueState{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.names[leasestate.Key{Name: name}]; e != nil {
		return e.Value(s.now()), nil
	}
	return driver.ValueState{}, nil
}

// Revoke implements driver.Controller.
func (s *Store) Revoke(ctx context.Context, name string, slot int, fence driver.Fence, by driver.Cause) error {
	if err := checkControl(ctx, name, by.Validate()); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.names[leasestate.Key{Name: name}]; e != nil {
		return e.Revoke(slot, fence, by, s.now())
	}
	return driver.ErrNotHeld
}

func checkControl(ctx context.Context, name string, err error) error {
	if err == nil {
		err = driver.CheckName(name)
	}
	if err == nil {
		err = ctx.Err()
	}
	return err
}
