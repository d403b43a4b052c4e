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
	// tickMemory is how long the start of a tick is remembered. The store refuses ticks older than
	// half of it. So a forgotten tick starts again only if a host's clock is wrong by more than the
	// other half.
	tickMemory = time.Hour
	// maxRounds limits how often an attempt starts over after it has lost to others. Even two
	// rounds are rare.
	maxRounds = 10
)

var errShared = fmt.Errorf("redlock: %w: a quorum takes one lock at a time: use redislock, or a store on a table, "+
	"such "+
	"as sqllock.Postgres", driver.ErrFault)

var errDelay = fmt.Errorf("redlock: %w: a quorum does not remember when a lease ended, so it keeps no delay: use "+
	"redislock, or a store on a table, such as sqllock.Postgres", driver.ErrFault)

// TryAcquire implements driver.Store within the limits in the package comment. A Tick.Max above
// driver.MaxSlots is an error.
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
	ctx      context.Context // the caller's context
	work     context.Context // has ctx's deadline but ignores its cancellation, because votes may have to be released
	ends     time.Time
	patience time.Duration // maximum wait for each server in each step; see nodes
	slots    []string      // keys of the slots
	ticks    []string      // keys of the tick's starts
	tick     string        // the key of ticks that was taken
	oldTick  bool          // an earlier call took the key
}

// These are the numbers of remaining steps in an attempt. Each step takes at most the attempt's
// patience.
const (
	stepsToSlot = 3 // take the slot and fail; undo that; give the tick back
	stepsToTick = 2 + stepsToSlot
	stepsInAll  = 1 + stepsToTick + 2 // look first; the rest is for more rounds
)

func (s *Store) newAttempt(ctx context.Context, req driver.Request) (*attempt, context.CancelFunc) {
	a := &attempt{store: s, req: req, ctx: ctx, ends: end(ctx), slots: s.slotKeys(req.Name, req.Slots)}
	a.patience = share(a.ends, stepsInAll)
	if req.Tick != nil {
		kind := ":slot:tick:"
		if req.Slots == 0 { // ticks of a semaphore of the same name are separate
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

// nodes returns the servers and does not skip any that hang. Each step waits for a server that
// hangs, so that a late write of this server is also undone, even if late.
func (a *attempt) nodes() []redsyncredis.Pool { return a.store.nodes(a.patience, nil) }

// end returns the deadline of a call.
func end(ctx context.Context) time.Time {
	if t, ok := ctx.Deadline(); ok {
		return t
	}
	return time.Now().Add(rediskit.LastResort)
}

// share returns the time that each server gets for one step.
func share(ends time.Time, steps int) time.Duration {
	return time.Until(ends) / time.Duration(steps)
}

var (
	errAllTaken = errors.New("redlock: others hold a majority of each key") // a definite refusal
	errRaced    = errors.New("redlock: others were quicker")                // the next round may succeed
	errNoTime   = errors.New("redlock: no time left to ask for another key")
)

// run makes the attempt and returns the slot that it took.
func (a *attempt) run() (slot int, err error) {
	for round := range maxRounds {
		if round > 0 && !a.pause(round) {
			break
		}
		// look writes nothing. If too few servers answer even this, the reason is not contention.
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
	case errors.Is(err, errRaced) && a.ctx.Err() != nil: // the next round could have succeeded
		return 0, a.ctx.Err()
	case a.ticks != nil && a.tick == "":
		return 0, refusal(a.req, driver.ReasonTickTaken)
	default:
		return 0, refusal(a.req, driver.ReasonFull)
	}
}

// pause waits for a random time, so that attempts that split the votes separate. It reports whether
// there is time for another round.
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

// round tries the keys that look free. The tick comes first: most hosts are refused the tick, and
// they then disturb no slot.
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

// takeOne takes one of the keys. If the token already has a key from an earlier request, it takes
// that key. If two calls use the token at the same time, both try the keys in the same order, so
// the token never gets two.
func (a *attempt) takeOne(keys []string, seen []sight, ttl time.Duration, steps int) (int, error) {
	verdict := errAllTaken
	for _, i := range ours(seen) {
		err := a.take(keys[i], ttl, true, steps)
		if err == nil {
			for _, j := range ours(seen) { // release keys that late requests of this token have taken
				if j != i {
					_, _ = a.store.mutex(keys[j], a.req.Token, 0, a.nodes()).UnlockContext(a.work)
				}
			}
			return i, nil
		}
		if !errors.Is(err, errRaced) {
			return 0, err // the key may still be ours, so do not take a second one
		}
		verdict = err // the key was ours
	}
	h := fnv.New32a()
	h.Write([]byte(a.req.Token))
	first := int(h.Sum32() % uint32(len(keys))) // tokens are random, which spreads the load
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

// ours returns the indexes of the keys that the token has on any server, beginning with the key on
// the most servers.
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

// take takes a key. It returns nil, errRaced, or an error that means "unknown".
//
// It uses redsync's ExtendContext with WithSetNXOnExtend instead of TryLockContext. A server that
// already has the key for this token refuses TryLockContext. After a failure, TryLockContext also
// releases its votes. If some servers did not answer, this would end the lease of a repeated token.
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
			_, _ = m.UnlockContext(a.work) // release the votes that this call got
		}
		return errRaced
	}
	if !again {
		_, _ = m.UnlockContext(a.work)
	}
	return a.store.undecided(err)
}

// giveBackTick undoes this call's claim of the tick, but not a claim that an earlier call may have
// reported to the caller.
func (a *attempt) giveBackTick() {
	if a.tick != "" && !a.oldTick {
		_, _ = a.store.mutex(a.tick, a.req.Token, tickMemory, a.nodes()).UnlockContext(a.work)
	}
}
