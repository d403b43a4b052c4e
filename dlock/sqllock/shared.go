package sqllock

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock/internal/store"
	"github.com/tickslot/tickslot/internal/startlog"
)

var (
	errOneOnly = errors.New("sqllock: SQLServer is experimental, and takes one lock at a time: use another database")
	errNoDelay = errors.New("sqllock: SQLServer is experimental, and keeps no delay between leases: use another " +
		"database")
	errEnded = fmt.Errorf("sqllock: %w: of the leases of one request some have ended: release the others",
		driver.ErrFault)
)

// CheckShared implements driver.SharedLimiter. Except on SQL Server, one step can take any names of
// a table.
func (s *Store) CheckShared(name string, shared ...string) error {
	if err := s.Check(); err != nil {
		return err
	}
	if !s.db.TakesShared() {
		return errOneOnly
	}
	for _, n := range append([]string{name}, shared...) {
		if _, err := s.resource(n, 1); err != nil {
			return err
		}
	}
	return nil
}

// CheckRate implements driver.RateLimiter. Except on SQL Server, a rate is supported if its Per is
// shorter than Options.Retention. With a longer Per, Cleanup could delete the row that has the
// starts.
func (s *Store) CheckRate(per time.Duration) error {
	if err := s.Check(); err != nil {
		return err
	}
	if !s.db.TakesShared() {
		return errOneOnly
	}
	if longest := per + per/60; longest >= s.retention {
		return fmt.Errorf("sqllock: a rate with Per %v: Cleanup deletes rows that were idle for Options.Retention, "+
			"%v: set a longer one", per, s.retention)
	}
	return nil
}

// CheckDelay implements driver.Delayer. Except on SQL Server, a delay is supported if it is shorter
// than Options.Retention. With a longer delay, Cleanup could delete the row that has the end of the
// last lease.
func (s *Store) CheckDelay(delay time.Duration) error {
	if err := s.Check(); err != nil {
		return err
	}
	if !s.db.KeepsDelay() {
		return errNoDelay
	}
	if delay >= s.retention {
		return fmt.Errorf("sqllock: a delay of %v: Cleanup deletes rows that were idle for Options.Retention, %v: "+
			"set a longer one", delay, s.retention)
	}
	return nil
}

// sharedOf converts the further semaphores of a request for the database.
func (s *Store) sharedOf(req driver.Request) (list []store.SemaphoreSpec, err error) {
	if len(req.Shared) > 0 && !s.db.TakesShared() {
		return nil, errOneOnly
	}
	for _, l := range req.Shared {
		resource, err := s.resource(l.Name, l.Slots)
		if err != nil {
			return nil, err
		}
		if l.Rate > 0 {
			if err := s.CheckRate(l.Per); err != nil {
				return nil, err
			}
		}
		list = append(list, store.SemaphoreSpec{Resource: resource, Slots: l.Slots, Rate: l.Rate,
			Per: startlog.Micros(l.Per)})
	}
	return list, nil
}

// partsOf returns the parts of an answer that describe the request's n further semaphores.
func partsOf(v store.AcquireResult, n int) (parts []store.Part, err error) {
	if err := json.Unmarshal([]byte(v.Shared), &parts); err != nil || len(parts) != n {
		return nil, fmt.Errorf("%w: %+v", store.ErrAnswer, v)
	}
	for _, p := range parts {
		if p.Slot < 0 || p.Slot >= driver.MaxSlots || p.Declared < 0 || p.Version < 0 || p.Limit < 0 ||
			p.Limit > driver.MaxSlots {
			return nil, fmt.Errorf("%w: %+v", store.ErrAnswer, v)
		}
	}
	return parts, nil
}

func infoOf(p store.Part) driver.Info {
	return driver.Info{DeclaredSlots: int(p.Declared), Version: p.Version, SlotLimit: int(p.Limit)}
}

// sharedGranted returns the grants of the further semaphores.
func sharedGranted(v store.AcquireResult, req driver.Request) (list []driver.Grant, err error) {
	if len(req.Shared) == 0 {
		return nil, nil
	}
	parts, err := partsOf(v, len(req.Shared))
	if err != nil {
		return nil, err
	}
	for i, p := range parts {
		if p.Fence <= 0 {
			return nil, fmt.Errorf("%w: %+v", store.ErrAnswer, v)
		}
		l := req.Shared[i]
		list = append(list, driver.Grant{Name: l.Name, Slots: l.Slots, Slot: int(p.Slot), Token: req.Token,
			Fence: driver.Fence(p.Fence), Info: infoOf(p), PreviousExpired: p.Expired != 0})
	}
	return list, nil
}

// limitFull returns the refusal by a further semaphore or by its rate.
func limitFull(v store.AcquireResult, req driver.Request, info driver.Info) error {
	parts, err := partsOf(v, 1)
	if err != nil {
		return err
	}
	i := int(parts[0].Slot)
	if i >= len(req.Shared) {
		return fmt.Errorf("%w: %+v", store.ErrAnswer, v)
	}
	no := &driver.NotAcquiredError{Name: req.Name, Reason: driver.Reason(v.Reason), Slots: req.Slots,
		Shared:     req.Shared[i],
		SharedInfo: infoOf(parts[0]), Holder: v.Holder, HeldFor: duration(v.HeldFor), ExpiresIn: duration(v.ExpiresIn),
		Info: info}
	if v.Origin != "" {
		no.PausedBy = readOrigin(v.Origin)
	}
	return no
}
