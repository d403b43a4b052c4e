// Package memory is an in-memory store.Store for the tests of package durable. It keeps the same
// contract as the databases, in virtual time, and tests can inspect all its rows.
package memory

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/startlog"
)

// A Store keeps schedules, runs and attempts. Its methods may be called from any goroutine. Each
// call is atomic and happens at one instant.
type Store struct {
	// Reclaimed is called, with a mutex held, when a call reclaims an expired lease. late is the
	// time since the end of the lease. May be nil.
	Reclaimed func(late time.Duration)
	// NoNotifications simulates a database without notifications: Listen only waits.
	NoNotifications bool

	ahead atomic.Int64 // ns by which the store's clock is ahead of this process's clock

	mu        sync.Mutex // used by all callers
	lastID    int64
	schedules map[string]*scheduleRow
	handlers  map[string]*handlerRow
	runs      map[int64]*runRow
	queued    map[int64]*runRow // the runs that are queued
	running   map[int64]*runRow // the runs that are running
	ticks     map[tick]bool     // ticks that have a run; corresponds to the unique index
	attempts  map[int64][]attempt
	listeners map[int]chan struct{}
	lastHeard int
}

// A tick identifies the run of a schedule.
type tick struct {
	schedule string
	due      time.Time
}

type scheduleRow struct {
	store.ScheduleRow
	nextSpec              string
	pausedAt, pausedUntil time.Time // of the latest pause, even if it is over
}

type handlerRow struct {
	store.Handler // as last registered
	starts        startlog.Log
	peers         store.Peers
	override      int // -1: none
	by            store.Cause
	paused        *store.Pause
	seenAt        time.Time
}

type attempt struct {
	store.Attempt
	claim int64 // RunKey.Claim of its latest claim
}

type runRow struct {
	store.Run
	before    int  // attempts that do not count
	most      int  // MaxAttempts of the latest claim
	ownMost   int  // limit set by the trigger; 0: the handler's limit
	crashes   int  // attempts with a lost lease since the latest Requeue
	canceled  bool // a cancellation was requested
	scheduled bool // counts in the unique index of one queued run per schedule
	// The trigger's key, and until when it belongs to the run.
	key          string
	keyUntil     store.KeyUntil
	keyExpiresAt time.Time // zero if there is none
}

// New returns an empty store.
func New() *Store {
	return &Store{
		schedules: map[string]*scheduleRow{}, handlers: map[string]*handlerRow{}, runs: map[int64]*runRow{},
		queued: map[int64]*runRow{}, running: map[int64]*runRow{}, ticks: map[tick]bool{},
		attempts: map[int64][]attempt{}, listeners: map[int]chan struct{}{},
	}
}

func (s *Store) String() string { return "memory" }

// Migrate implements store.Store. There is nothing to do.
func (s *Store) Migrate(ctx context.Context) error { return ctx.Err() }

// Verify implements store.Store.
func (s *Store) Verify(ctx context.Context) error { return ctx.Err() }

// Schema implements store.Store.
func (s *Store) Schema() ([]string, error) { return nil, nil }

// Now returns the time of the store's clock.
func (s *Store) Now() time.Time {
	return time.Now().Add(time.Duration(s.ahead.Load())).UTC().Truncate(time.Microsecond)
}

// AdvanceClock sets the clock forward, or back if by is negative.
func (s *Store) AdvanceClock(by time.Duration) { s.ahead.Add(int64(by)) }

// lock locks the store and returns the call's instant, or an error if its context has ended.
func (s *Store) lock(ctx context.Context) (now time.Time, unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return now, nil, context.Cause(ctx)
	}
	s.mu.Lock()
	return s.Now(), s.mu.Unlock, nil
}

// Notify implements store.Worker.
func (s *Store) Notify(ctx context.Context) error {
	_, unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	for _, woken := range s.listeners {
		select {
		case woken <- struct{}{}:
		default: // a wake-up is pending
		}
	}
	return nil
}

// Listen implements store.Worker.
func (s *Store) Listen(ctx context.Context, woken func()) error {
	if s.NoNotifications {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	_, unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	s.lastHeard++
	me, heard := s.lastHeard, make(chan struct{}, 1)
	s.listeners[me] = heard
	unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.listeners, me)
	}()
	for {
		woken()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case _, ok := <-heard:
			if !ok {
				return errors.New("memory: the connection was closed")
			}
		}
	}
}

// Disconnect ends all Listens.
func (s *Store) Disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for me, heard := range s.listeners {
		close(heard)
		delete(s.listeners, me)
	}
}
