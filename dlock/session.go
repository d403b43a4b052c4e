package dlock

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

const (
	// DefaultTTL is the length of a lease. It is how long the slot of a dead host stays taken, not how long a run may take.
	DefaultTTL = 15 * time.Second
	// DefaultStoreTimeout bounds every call to the store.
	DefaultStoreTimeout = time.Second

	// beatBatch is how many leases one call to Extend renews. A store needs about a millisecond for so many.
	beatBatch = 500
	// maxUnsettled bounds the grants that are waiting to be given back; each ends by itself within a TTL.
	maxUnsettled = 10_000
	// sleepCheck is how often, while leases are held, a session looks whether the machine was asleep.
	sleepCheck = 500 * time.Millisecond
	// sleepNoise is what may come between two looks without sleep: rounding, and where sleep is only an estimate
	// a wall clock that is being slewed. It would otherwise cause a heartbeat at every look.
	sleepNoise = 10 * time.Millisecond
)

var errNoAnswer = errors.New("no answer for this lease")

// SessionOptions are the settings of a Session. The zero value is fine.
type SessionOptions struct {
	// TTL of the leases. They are renewed every third of it. At least three times StoreTimeout. Default 15 s.
	TTL time.Duration
	// StoreTimeout bounds each acquire, each heartbeat call and each release. An acquire asks a second time after half
	// of it, so the store has to answer within that half. Default 1 s.
	StoreTimeout time.Duration
	// Holder is how operators see this process. Default NewHolder().
	Holder Holder
}

func (o SessionOptions) withDefaults() SessionOptions {
	if o.TTL == 0 {
		o.TTL = DefaultTTL
	}
	if o.StoreTimeout == 0 {
		o.StoreTimeout = DefaultStoreTimeout
	}
	if o.Holder == (Holder{}) {
		o.Holder = NewHolder()
	}
	return o
}

// Validate checks the options against each other.
func (o SessionOptions) Validate() error {
	o = o.withDefaults()
	var errs []error
	if o.StoreTimeout < time.Millisecond {
		errs = append(errs, fmt.Errorf("StoreTimeout %v: must be at least 1ms", o.StoreTimeout))
	}
	if timeout := max(o.StoreTimeout, time.Millisecond); o.TTL/3 < timeout {
		errs = append(errs, fmt.Errorf("TTL %v: must be at least three times StoreTimeout (%v), so that a heartbeat can fail and be repeated before the lease ends: use %v or more, or a shorter StoreTimeout",
			o.TTL, timeout, 3*timeout))
	}
	return errors.Join(errs...)
}

// A Session holds the leases of one process on one store. It renews all of them together: one call to the
// store per 500 leases and beat, a beat every third of the TTL. It has no goroutine while it holds
// nothing. Its methods may be called from any goroutine.
type Session struct {
	store        DistributedLock
	holder       Holder
	ttl          time.Duration
	trust        time.Duration
	storeTimeout time.Duration

	life    context.Context // of the heartbeat; Close ends it, so that it need not wait for a store that hangs
	endLife context.CancelFunc

	mu        sync.Mutex
	closed    bool
	leases    map[*Lease]struct{}
	unsettled []unsettled
	beating   bool // a beat is going on
	beatEnd   chan struct{}
	next      *time.Timer // the next beat; nil or stopped while there is nothing to do
	nextAt    time.Time
	sleeper   *time.Timer // looks for sleep of the machine
	slept     time.Duration
}

// unsettled is a grant of unknown outcome, to be released by token as soon as the store answers.
type unsettled struct {
	Grant
	ends time.Time // when it has ended by itself, if it was made at all, and is no longer worth a call
}

// NewSession checks the options against each other and against the store. Nothing is started and the store
// is not called.
func NewSession(store DistributedLock, opts SessionOptions) (*Session, error) {
	opts = opts.withDefaults()
	errs := []error{opts.Validate()}
	if store == nil {
		errs = append(errs, errors.New("no store: pass a redislock, sqllock or memlock store"))
	}
	if c, ok := store.(Checker); ok {
		errs = append(errs, c.Check())
	}
	if b, ok := store.(TTLBounder); ok && opts.TTL > b.MaxTTL() {
		errs = append(errs, fmt.Errorf("TTL %v: this store takes at most %v (its QuarantineTTL): use a shorter TTL, or raise QuarantineTTL on every host", opts.TTL, b.MaxTTL()))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("dlock: %w", err)
	}
	life, end := context.WithCancel(context.Background())
	return &Session{
		life:         life,
		endLife:      end,
		store:        store,
		holder:       opts.Holder,
		ttl:          opts.TTL,
		trust:        trust(opts.TTL),
		storeTimeout: opts.StoreTimeout,
		leases:       make(map[*Lease]struct{}),
	}, nil
}

// Holder is how operators see the leases of this session.
func (s *Session) Holder() Holder { return s.holder }

// TTL is the length of its leases.
func (s *Session) TTL() time.Duration { return s.ttl }

// Close ends the heartbeat and makes one last try, bounded by StoreTimeout, to give back what is unsettled.
// Release your leases first: one that is still held is no longer renewed and ends within a TTL.
func (s *Session) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.storeTimeout)
	defer cancel()
	s.mu.Lock()
	s.closed = true
	s.stopTimers()
	s.endLife()
	for s.beating {
		ended := s.beatEnd
		s.mu.Unlock()
		<-ended // its call to the store ends with life
		s.mu.Lock()
	}
	last := s.unsettled
	s.unsettled = nil
	s.mu.Unlock()
	_, err := s.settleAll(ctx, last)
	return err
}

// acquire makes one attempt: one request, and if its reply is lost the same request once more.
func (s *Session) acquire(ctx context.Context, name string, slots int, tick *Tick) (*Lease, error) {
	req := Request{Name: name, Slots: slots, Holder: s.holder, Token: crand.Text(), TTL: s.ttl, Tick: tick}
	if err := req.Validate(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return nil, ErrClosed
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s: acquire: %w", name, context.Cause(ctx))
	}
	deadline := time.Now().Add(s.storeTimeout)
	grant, sent, err := s.ask(ctx, req, deadline.Add(-s.storeTimeout/2))
	unknown := isUnknown(err)
	if unknown && ctx.Err() == nil {
		// The request may have been carried out and only its reply lost: the same token finds that grant.
		grant, sent, err = s.ask(ctx, req, deadline)
	}
	if err == nil {
		lease := s.newLease(ctx, grant)
		opened := lease.open(sent)
		if opened && s.add(lease) {
			if lease.Err() != nil { // its window closed before it was added: nobody else will remove it
				s.remove(lease)
			}
			return lease, nil
		}
		lease.end(released, ErrReleased)
		if opened { // closed meanwhile: nothing settles any more, so give it back here
			ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
			defer cancel()
			_, _ = s.callRelease(ctx, []Grant{grant}) // if that fails it ends within a TTL
			return nil, ErrClosed
		}
		err = errors.New("the answer came later than the lease can be trusted")
		unknown = true
	}
	if unknown {
		s.settle(Grant{Name: name, Slots: slots, Slot: AnySlot, Token: req.Token})
	}
	if errors.Is(err, ErrNotAcquired) {
		if no, ok := errors.AsType[*NotAcquiredError](err); ok {
			return nil, no
		}
		return nil, &NotAcquiredError{Name: name, Slots: slots} // a store that gave no reason
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s: acquire: %w", name, context.Cause(ctx))
	}
	return nil, &StoreError{Op: "acquire", Name: name, Err: err}
}

func (s *Session) ask(ctx context.Context, req Request, deadline time.Time) (g Grant, sent instant, err error) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	defer recovered(&err)
	sent = now()
	g, err = s.store.TryAcquire(ctx, req)
	return g, sent, err
}

func isUnknown(err error) bool { return err != nil && !errors.Is(err, ErrNotAcquired) }

// recovered turns a panic of a store into an error: it must not end the heartbeat or the caller.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("the store panicked: %v", p)
	}
}

func (s *Session) newLease(ctx context.Context, g Grant) *Lease {
	l := &Lease{session: s, grant: g, since: time.Now(), renew: true, news: g.News}
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	return l
}

// releaseNow gives one grant back, on a context of its own.
func (s *Session) releaseNow(ctx context.Context, g Grant) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.storeTimeout)
	defer cancel()
	results, err := s.callRelease(ctx, []Grant{g})
	if err == nil && results[0].Outcome == Unknown {
		err = cmp.Or(results[0].Err, errNoAnswer)
	}
	if err != nil {
		s.settle(g)
		return &StoreError{Op: "release", Name: g.Name, Err: err}
	}
	if results[0].Outcome == Lost {
		return &LostError{Name: g.Name, Slot: g.Slot}
	}
	return nil
}

func (s *Session) callRelease(ctx context.Context, grants []Grant) (results []Result, err error) {
	defer recovered(&err)
	results, err = s.store.Release(ctx, grants...)
	if err == nil && len(results) != len(grants) {
		err = fmt.Errorf("the store answered %d of %d", len(results), len(grants))
	}
	return results, err
}

func (s *Session) callExtend(grants []Grant) (results []Result, err error) {
	ctx, cancel := context.WithTimeout(s.life, s.storeTimeout)
	defer cancel()
	defer recovered(&err)
	results, err = s.store.Extend(ctx, s.ttl, grants...)
	if err == nil && len(results) != len(grants) {
		err = fmt.Errorf("the store answered %d of %d", len(results), len(grants))
	}
	return results, err
}

// add puts a new lease under the heartbeat.
func (s *Session) add(l *Lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.leases[l] = struct{}{}
	s.schedule(s.ttl / 3)
	if s.sleeper == nil {
		s.slept = suspended()
		s.sleeper = time.AfterFunc(sleepCheck, s.checkSleep)
	}
	return true
}

func (s *Session) remove(l *Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.leases, l)
	if len(s.leases) == 0 && len(s.unsettled) == 0 {
		s.stopTimers()
	}
}

// settle hands a grant of unknown outcome to the heartbeat, which gives it back as soon as the store answers.
func (s *Session) settle(g Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if len(s.unsettled) == maxUnsettled {
		s.unsettled = s.unsettled[1:]
	}
	s.unsettled = append(s.unsettled, unsettled{g, time.Now().Add(s.ttl)})
	s.schedule(s.retryWait())
}

// beatSoon makes the next beat come after wait at the latest.
func (s *Session) beatSoon(wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.schedule(wait)
}

// schedule must be called with mu held. It never postpones a beat.
func (s *Session) schedule(wait time.Duration) {
	at := time.Now().Add(wait)
	switch {
	case s.closed || s.beating: // the end of a beat schedules the next
		if s.nextAt.IsZero() || at.Before(s.nextAt) {
			s.nextAt = at
		}
	case s.next == nil:
		s.nextAt = at
		s.next = time.AfterFunc(wait, s.beat)
	case s.nextAt.IsZero() || at.Before(s.nextAt):
		s.nextAt = at
		s.next.Reset(wait)
	}
}

// stopTimers must be called with mu held.
func (s *Session) stopTimers() {
	if s.next != nil {
		s.next.Stop()
		s.nextAt = time.Time{}
	}
	if s.sleeper != nil {
		s.sleeper.Stop()
		s.sleeper = nil
	}
}

// retryWait is the pause after a heartbeat that failed: several fit into a trust window, and hosts that lost
// the store together do not come back together.
func (s *Session) retryWait() time.Duration {
	return s.ttl/10 + rand.N(s.ttl/20)
}

// beat is the heartbeat: it renews every lease, and gives back what is unsettled. It runs on the
// goroutine of a timer, one at a time, and nothing that a store does (an error, a panic, a slow call)
// keeps the next one from coming.
func (s *Session) beat() {
	s.mu.Lock()
	if s.closed || s.beating {
		s.mu.Unlock()
		return
	}
	s.beating = true
	s.beatEnd = make(chan struct{})
	s.nextAt = time.Time{}
	started := time.Now()
	leases := make([]*Lease, 0, len(s.leases))
	for l := range s.leases {
		leases = append(leases, l)
	}
	owed := slices.DeleteFunc(s.unsettled, func(u unsettled) bool { return started.After(u.ends) })
	s.unsettled = nil
	s.mu.Unlock()

	answered := s.renewAll(leases)
	if answered {
		var err error
		owed, err = s.settleAll(s.life, owed)
		answered = err == nil
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.beating = false
	close(s.beatEnd)
	s.unsettled = append(owed, s.unsettled...)
	if s.closed || len(s.leases) == 0 && len(s.unsettled) == 0 {
		s.stopTimers()
		return
	}
	wait := max(0, s.ttl/3-time.Since(started))
	if !answered {
		wait = min(wait, s.retryWait())
	}
	if !s.nextAt.IsZero() { // somebody asked for an earlier one meanwhile
		wait = min(wait, max(0, time.Until(s.nextAt)))
		s.nextAt = time.Time{}
	}
	s.schedule(wait)
}

// renewAll reports whether the store answered for every lease.
func (s *Session) renewAll(leases []*Lease) bool {
	batch := make([]*Lease, 0, min(len(leases), beatBatch))
	grants := make([]Grant, 0, cap(batch))
	answered := true
	flush := func(later []*Lease) {
		if len(batch) == 0 || s.life.Err() != nil {
			return
		}
		sent := now()
		results, err := s.callExtend(grants)
		if err != nil && s.life.Err() != nil {
			return // Close interrupted it: not the store's failure
		}
		for i, l := range batch {
			switch {
			case err != nil:
				l.unanswered(err)
			case results[i].Outcome == OK:
				l.renewed(sent, results[i].News)
			case results[i].Outcome == Lost:
				l.lose(&LostError{Name: l.grant.Name, Slot: l.grant.Slot})
			default:
				l.unanswered(cmp.Or(results[i].Err, errNoAnswer))
				answered = false
			}
		}
		if err != nil {
			answered = false
			// While the store hangs, the turn of the others may come after their windows have closed:
			// that is its silence too.
			for _, l := range later {
				l.unanswered(err)
			}
		}
		batch, grants = batch[:0], grants[:0]
	}
	for i, l := range leases {
		l.mu.Lock()
		renew := l.renew && l.state == held
		l.mu.Unlock()
		if !renew {
			continue
		}
		batch, grants = append(batch, l), append(grants, l.grant)
		if len(batch) == beatBatch {
			flush(leases[i+1:])
		}
	}
	flush(nil)
	return answered && s.life.Err() == nil
}

// settleAll gives grants back in batches, each bounded by StoreTimeout and all by ctx. It returns what is still unsettled
// when the store stops answering.
func (s *Session) settleAll(ctx context.Context, owed []unsettled) ([]unsettled, error) {
	for len(owed) > 0 {
		batch := make([]Grant, min(len(owed), beatBatch))
		for i := range batch {
			batch[i] = owed[i].Grant
		}
		ctx, cancel := context.WithTimeout(ctx, s.storeTimeout)
		results, err := s.callRelease(ctx, batch)
		cancel()
		if err != nil {
			return owed, err
		}
		for i, r := range results {
			if r.Outcome == Unknown {
				return owed[i:], cmp.Or(r.Err, errNoAnswer)
			}
		}
		owed = owed[len(batch):]
	}
	return nil, nil
}

// checkSleep looks, off the heartbeat because that may be waiting for the store, whether the machine was
// asleep: the timers of the leases have then stood still and go off too late.
func (s *Session) checkSleep() {
	slept := suspended()
	s.mu.Lock()
	if s.sleeper == nil {
		s.mu.Unlock()
		return
	}
	s.sleeper.Reset(sleepCheck)
	asleep := slept > s.slept+sleepNoise
	s.slept = slept
	var leases []*Lease
	if asleep {
		for l := range s.leases {
			leases = append(leases, l)
		}
	}
	s.mu.Unlock()
	for _, l := range leases {
		l.check()
	}
	if asleep {
		s.beatSoon(0)
	}
}
