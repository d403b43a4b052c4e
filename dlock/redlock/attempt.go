package redlock

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/rediskit"
)

const (
	// tickMemory is how long the start of a tick is remembered. Ticks older than half of it are
	// refused, so a forgotten tick is not started again by a host whose clock is wrong by less than
	// the other half.
	tickMemory = time.Hour
	// maxRounds bounds how often an attempt starts over after losing to others. Two rounds are
	// rare.
	maxRounds = 10
)

var errShared = fmt.Errorf("redlock: %w: a quorum takes one lock at a time: use redislock, or a store on a table, "+
	"such "+
	"as sqllock.Postgres", driver.ErrFault)

var errDelay = fmt.Errorf("redlock: %w: a quorum does not remember when a lease ended, so it keeps no delay: use "+
	"redislock, or a store on a table, such as sqllock.Postgres", driver.ErrFault)

// TryAcquire implements driver.Store, within the limits in the package comment. A Tick.Max
// above driver.MaxSlots is an error.
func (s *Store) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := s.Check(); err != nil {
		return driver.Grant{}, err
	}
	if err := req.Validate(); err != nil {
		return driver.Grant{}, err
	}
	if len(req.Shared) > 0 {
		return driver.Grant{}, errShared
	}
	if err := s.checkKey(req.Name); err != nil {
		return driver.Grant{}, err
	}
	if req.Tick != nil && req.Tick.Delay > 0 {
		return driver.Grant{}, errDelay
	}
	if req.Tick != nil {
		if req.Tick.Max > driver.MaxSlots {
			return driver.Grant{}, fmt.Errorf("redlock: %d starts of a tick: at most %d", req.Tick.Max, driver.MaxSlots)
		}
		switch ahead := time.Until(req.Tick.At); {
		case ahead > driver.MaxTickAhead:
			return driver.Grant{}, refusal(req, driver.ReasonTickAhead)
		case ahead < -tickMemory/2:
			return driver.Grant{}, refusal(req, driver.ReasonTickLate)
		case !req.Tick.MissedAt.IsZero(): // the servers do not keep which tick was the last
			return driver.Grant{}, refusal(req, driver.ReasonTickFirst)
		}
	}
	if err := ctx.Err(); err != nil {
		return driver.Grant{}, err
	}
	a, cancel := s.newAttempt(ctx, req)
	defer cancel()
	slot, err := a.run()
	if err != nil {
		a.giveBackTick()
		return driver.Grant{}, err
	}
	return driver.Grant{Name: req.Name, Slots: req.Slots, Slot: slot, Token: req.Token}, nil
}

func refusal(req driver.Request, reason driver.Reason) error {
	return &driver.NotAcquiredError{Name: req.Name, Reason: reason, Slots: req.Slots}
}

// An attempt is one call of TryAcquire.
type attempt struct {
	store    *Store
	req      driver.Request
	ctx      context.Context // the caller's
	work     context.Context // ends with ctx's deadline but not its cancellation: votes may have to be taken back
	ends     time.Time
	patience time.Duration // wait for each server, per step; see nodes
	slots    []string      // keys
	ticks    []string      // keys
	tick     string        // the key in ticks that was taken
	oldTick  bool          // an earlier call took it
}

// The number of steps left in an attempt. Each lasts at most as long as its patience.
const (
	stepsToSlot = 3 // take it and fail; undo that; give the tick back
	stepsToTick = 2 + stepsToSlot
	stepsInAll  = 1 + stepsToTick + 2 // look first; the rest is for more rounds
)

func (s *Store) newAttempt(ctx context.Context, req driver.Request) (*attempt, context.CancelFunc) {
	a := &attempt{store: s, req: req, ctx: ctx, ends: end(ctx), slots: s.slotKeys(req.Name, req.Slots)}
	a.patience = share(a.ends, stepsInAll)
	if req.Tick != nil {
		kind := ":slot:tick:"
		if req.Slots == 0 { // a semaphore of the same name has ticks of its own
			kind = ":slot:mutex:tick:"
		}
		base := s.prefix + req.Name + kind + strconv.FormatInt(req.Tick.At.UnixMicro(), 10) + ":"
		for k := range req.Tick.Max {
			a.ticks = append(a.ticks, base+strconv.Itoa(k))
		}
	}
	var cancel context.CancelFunc
	a.work, cancel = context.WithDeadline(context.WithoutCancel(ctx), a.ends)
	return a, cancel
}

// nodes returns the servers, and treats none as hanging: a hanging server is waited for in each
// step, so that what it may have done late is also undone late.
func (a *attempt) nodes() []redsyncredis.Pool { return a.store.nodes(a.patience, nil) }

// end is the deadline of a call.
func end(ctx context.Context) time.Time {
	if t, ok := ctx.Deadline(); ok {
		return t
	}
	return time.Now().Add(rediskit.LastResort)
}

// share is the time that each server gets for one of the steps.
func share(ends time.Time, steps int) time.Duration {
	return time.Until(ends) / time.Duration(steps)
}

var (
	errAllTaken = errors.New("redlock: others hold a majority of each key") // a definite refusal
	errRaced    = errors.New("redlock: others were quicker")                // may succeed in the next round
	errNoTime   = errors.New("redlock: no time left to ask for another key")
)

// run returns the slot that was taken.
func (a *attempt) run() (slot int, err error) {
	for round := range maxRounds {
		if round > 0 && !a.pause(round) {
			break
		}
		// Looking writes nothing. If too few servers answer even that, the reason is not
		// contention.
		seen, lookErr := a.store.look(a.work, a.patience, false, slices.Concat(a.slots, a.ticks), a.req.Token)
		if lookErr != nil {
			return 0, lookErr
		}
		if slot, err = a.round(seen); err == nil {
			return slot, nil
		}
		if errors.Is(err, errAllTaken) || errors.Is(err, errNoTime) || a.ctx.Err() != nil {
			break
		}
	}
	switch {
	case !errors.Is(err, errAllTaken) && !errors.Is(err, errRaced):
		return 0, err
	case errors.Is(err, errRaced) && a.ctx.Err() != nil: // the next round might have succeeded
		return 0, a.ctx.Err()
	case a.ticks != nil && a.tick == "":
		return 0, refusal(a.req, driver.ReasonTickTaken)
	default:
		return 0, refusal(a.req, driver.ReasonFull)
	}
}

// pause lets attempts that split the votes drift apart. It reports whether there is time for
// another round.
func (a *attempt) pause(round int) bool {
	steps := 1 + stepsToSlot
	if a.ticks != nil && a.tick == "" {
		steps = 1 + stepsToTick
	}
	wait := time.Millisecond + rand.N(time.Millisecond<<min(round, 5))
	if time.Until(a.ends) < wait+time.Duration(steps)*a.patience {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-a.ctx.Done():
		return false
	}
}

// round takes what looks free. The tick comes first: most hosts are refused the tick, and then have
// not disturbed any slot.
func (a *attempt) round(seen []sight) (slot int, err error) {
	slots, ticks := seen[:len(a.slots)], seen[len(a.slots):]
	if a.ticks != nil && a.tick == "" {
		k, err := a.takeOne(a.ticks, ticks, tickMemory, stepsToTick)
		if err != nil {
			return 0, err
		}
		a.tick, a.oldTick = a.ticks[k], ticks[k].ours > 0
	}
	return a.takeOne(a.slots, slots, a.req.TTL, stepsToSlot)
}

// takeOne takes one of the keys. If an earlier request already got a key for this token, it takes
// that one. If two calls use the token at the same time, both visit the keys in the same order, so
// the token never gets two.
func (a *attempt) takeOne(keys []string, seen []sight, ttl time.Duration, steps int) (int, error) {
	verdict := errAllTaken
	for _, i := range ours(seen) {
		err := a.take(keys[i], ttl, true, steps)
		if err == nil {
			for _, j := range ours(seen) { // left behind by late requests of this token
				if j != i {
					_, _ = a.store.mutex(keys[j], a.req.Token, 0, a.nodes()).UnlockContext(a.work)
				}
			}
			return i, nil
		}
		if !errors.Is(err, errRaced) {
			return 0, err // it may still be ours: a second one must not be taken
		}
		verdict = err // it was ours
	}
	h := fnv.New32a()
	h.Write([]byte(a.req.Token))
	first := int(h.Sum32() % uint32(len(keys))) // tokens are random, so there is no hot spot
	for n := range keys {
		i := (first + n) % len(keys)
		if seen[i].ours > 0 || seen[i].others >= a.store.majority() {
			continue
		}
		err := a.take(keys[i], ttl, false, steps)
		if err == nil {
			return i, nil
		}
		if errors.Is(err, errNoTime) {
			return 0, err
		}
		if errors.Is(verdict, errAllTaken) || !errors.Is(err, errRaced) {
			verdict = err
		}
	}
	return 0, verdict
}

// ours returns the indexes of the keys that the token has on some server, the one with the most
// servers first.
func ours(seen []sight) []int {
	var list []int
	for i := range seen {
		if seen[i].ours > 0 {
			list = append(list, i)
		}
	}
	slices.SortStableFunc(list, func(i, j int) int { return seen[j].ours - seen[i].ours })
	return list
}

// take returns nil, errRaced, or an error that means "unknown".
//
// It uses redsync's ExtendContext with WithSetNXOnExtend, not TryLockContext. A server that already
// has the key for this token refuses TryLockContext, which also takes its votes back when it fails.
// That would end the lease of a repeated token while some servers do not answer.
func (a *attempt) take(key string, ttl time.Duration, again bool, steps int) error {
	if err := a.ctx.Err(); err != nil {
		return err
	}
	if time.Until(a.ends) < time.Duration(steps)*a.patience {
		return errNoTime
	}
	m := a.store.mutex(key, a.req.Token, ttl, a.nodes(), redsync.WithSetNXOnExtend())
	taken, err := m.ExtendContext(a.work)
	if taken {
		return nil
	}
	no := refused(err)
	if no >= a.store.majority() {
		if no < len(a.store.pools) {
			_, _ = m.UnlockContext(a.work) // the votes that this call got
		}
		return errRaced
	}
	if !again {
		_, _ = m.UnlockContext(a.work)
	}
	return a.store.undecided(err)
}

// giveBackTick undoes the claim of this call, but not one that an earlier call may have reported to
// the caller.
func (a *attempt) giveBackTick() {
	if a.tick != "" && !a.oldTick {
		_, _ = a.store.mutex(a.tick, a.req.Token, tickMemory, a.nodes()).UnlockContext(a.work)
	}
}
