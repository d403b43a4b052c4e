package redislock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

// Update implements driver.Controller. It stores the overrides in the state of the name. From then
// on, the state does not expire. Redis replicates asynchronously, so a failover may lose the latest
// update. Inspect returns the overrides in force.
func (s *Store) Update(ctx context.Context, name string, update driver.Update) error {
	if err := s.checkControl(name, update.Validate()); err != nil {
		return err
	}
	k := s.keys(name, false)
	pause, pauseOrigin, limit, limitOrigin, trigger := "", "", "", "", ""
	switch p := update.Pause; {
	case p != nil:
		pause, pauseOrigin = strconv.FormatInt(micros(p.For), 10), originJSON(p.Cause)
	case update.Resume != nil:
		pause, pauseOrigin = "0", originJSON(*update.Resume)
	}
	switch l := update.Limit; {
	case l != nil:
		limit, limitOrigin = strconv.Itoa(l.Slots), originJSON(l.Cause)
	case update.ResetLimit != nil:
		limit, limitOrigin = "-1", originJSON(*update.ResetLimit)
	}
	if update.Trigger != nil {
		trigger = originJSON(*update.Trigger)
	}
	value, ifVersion := "", ""
	if v := update.Value; v != nil {
		value, ifVersion = v.Text, strconv.FormatInt(v.Version, 10)
	}
	version, err := updateScript.Run(ctx, s.client, []string{k.state}, pause, pauseOrigin, limit, limitOrigin, trigger,
		k.other, s.form(), value, ifVersion).Result()
	switch {
	case err != nil:
		return s.classifyError(ctx, err)
	case update.Value != nil && version == int64(0):
		return driver.ErrChanged
	case number(version) <= 0:
		return errAnswer
	}
	return nil
}

// Inspect implements driver.Controller. It uses one pipeline, or on a Cluster one per node.
func (s *Store) Inspect(ctx context.Context, names ...string) ([]driver.ControlState, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	calls := make([]*call, len(names))
	for i, name := range names {
		if err := s.checkControl(name, nil); err != nil {
			return nil, err
		}
		k := s.keys(name, false)
		calls[i] = &call{script: inspectScript, keys: []string{k.state}}
	}
	runAll(ctx, s.client, calls)
	list := make([]driver.ControlState, len(names))
	failures := 0
	for i, c := range calls {
		err := c.failure
		if err == nil {
			list[i], err = parseControlState(names[i], c.answer)
		}
		if err != nil {
			list[i] = driver.ControlState{Name: names[i], Err: s.classifyError(ctx, err)}
			failures++
		}
	}
	if failures > 0 && failures == len(names) {
		return nil, list[0].Err
	}
	return list, nil
}

// Value implements driver.Controller.
func (s *Store) Value(ctx context.Context, name string) (driver.ValueState, error) {
	if err := s.checkControl(name, nil); err != nil {
		return driver.ValueState{}, err
	}
	answer, err := inspectScript.Run(ctx, s.client, []string{s.keys(name, false).state}, "value").Result()
	if err != nil {
		return driver.ValueState{}, s.classifyError(ctx, err)
	}
	return parseValueState(answer)
}

// Revoke implements driver.Controller. It stores the cause in the lease's own key, so the cause
// expires with the lease.
func (s *Store) Revoke(ctx context.Context, name string, slot int, fence driver.Fence, by driver.Cause) error {
	if err := s.checkControl(name, by.Validate()); err != nil {
		return err
	}
	if slot < 0 || slot >= driver.MaxSlots {
		return driver.ErrNotHeld
	}
	k := s.keys(name, false)
	done, err := revokeScript.Run(ctx, s.client, []string{k.state}, k.base+strconv.Itoa(slot), int64(fence),
		originJSON(by)).Result()
	switch {
	case err != nil:
		return s.classifyError(ctx, err)
	case done == int64(1):
		return nil
	case done == int64(0):
		return driver.ErrNotHeld
	}
	return errAnswer
}

func (s *Store) checkControl(name string, invalid error) error {
	if err := s.Check(); err != nil {
		return err
	}
	if err := errors.Join(driver.CheckName(name), invalid); err != nil {
		return fmt.Errorf("redislock: %w", err)
	}
	return s.checkKey(name)
}

func originJSON(o driver.Cause) string {
	b, _ := json.Marshal(o) // marshaling two strings cannot fail
	return string(b)
}

// micros rounds up. It returns 0 for zero and negative durations.
func micros(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Microsecond) + 1
}
