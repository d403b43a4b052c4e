package dlock

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"

	"github.com/tickslot/tickslot/internal/notify"
)

const (
	// DefaultTTL is the default of SessionOptions.TTL.
	DefaultTTL = 15 * time.Second
	// DefaultStoreTimeout is the default of SessionOptions.StoreTimeout.
	DefaultStoreTimeout = time.Second
)

// SessionOptions are the settings of a Session. The zero value is valid. NewSession reports all
// invalid settings at once.
type SessionOptions struct {
	// TTL is the length of a lease, and so how long the lock of a dead process stays taken. The
	// session renews leases every TTL/3, so a process can hold one for longer. At least three times
	// StoreTimeout, at most 24 h, and at most the store's maximum (on Redis, its QuarantineTTL).
	// Default 15 s.
	TTL time.Duration
	// StoreTimeout limits each acquire, heartbeat and release. If an acquire has no answer after
	// half of it, the session sends the request again, so the store should answer within that half.
	// 1 ms to 8 h. Default 1 s.
	StoreTimeout time.Duration
	// Holder identifies this process to operators as the owner of its leases. Default: host name,
	// process ID and a random part, as returned by NewHolder.
	Holder Holder
	// Hooks report each call to the store and leases that are acquired, lost or released. Default:
	// none.
	Hooks Hooks
}

func (s SessionOptions) withDefaults() SessionOptions {
	if s.TTL == 0 {
		s.TTL = DefaultTTL
	}
	if s.StoreTimeout == 0 {
		s.StoreTimeout = DefaultStoreTimeout
	}
	if s.Holder == (Holder{}) {
		s.Holder = NewHolder()
	}
	return s
}

// Validate checks the options, alone and against each other.
func (s SessionOptions) Validate() error {
	s = s.withDefaults()
	var errs []error
	if s.StoreTimeout < time.Millisecond || s.StoreTimeout > driver.MaxTTL/3 {
		errs = append(errs, fmt.Errorf("StoreTimeout %v: must be 1ms to %v", s.StoreTimeout, driver.MaxTTL/3))
	}
	timeout := min(max(s.StoreTimeout, time.Millisecond), driver.MaxTTL/3)
	if s.TTL/3 < timeout {
		errs = append(errs, fmt.Errorf("TTL %v: must be at least three times StoreTimeout (%v), so that a heartbeat "+
			"can fail and be repeated before the lease ends: use %v or more, or a shorter StoreTimeout",
			s.TTL, timeout, 3*timeout))
	}
	if s.TTL > driver.MaxTTL {
		errs = append(errs, fmt.Errorf("TTL %v: must be at most %v: "+
			"it is how long the slot of a dead host stays taken, not how long a run may take", s.TTL, driver.MaxTTL))
	}
	return errors.Join(errs...)
}

// A Session holds the leases of one process on one store and renews them. Its methods are safe for
// concurrent use.
//
// The Session renews leases in batches of up to 500, spread evenly over a third of the TTL. A lease
// is due a third of the TTL after its last renewal. After a failed renewal, it is due after a tenth
// of the TTL plus up to a twentieth at random. In the last third of its trust window, it is retried
// every half StoreTimeout. If the store has shards (see Sharder), no shard waits for another.
// Between renewals, a Session has no goroutine.
type Session struct {
	calls        storeCalls
	holder       Holder
	ttl          time.Duration
	trust        time.Duration
	storeTimeout time.Duration
	hooks        Hooks
	events       notify.Queue   // of leases, for the hooks
	sharder      driver.Sharder // nil if the store has no shards
	multi        bool           // the store is a SharedLimiter
	rates        bool           // the store is a RateLimiter
	delays       bool           // the store is a Delayer

	// life is the context of heartbeats. Close cancels it, so as not to wait for a store that
	// hangs.
	life    context.Context
	endLife context.CancelFunc

	mu            sync.Mutex
	closed        bool
	expiryQueue   leaseList   // every held lease, sorted by the start of its trust window
	expiryTimer   *time.Timer // runs expireLeases
	expiryTimerAt time.Time   // when it fires; zero if stopped
	watched       int         // number of held leases whose end a caller waits for
	sleepTimer    *time.Timer // runs checkSleep; nil while watched is 0
	slept         time.Duration

	main       heartbeat             // for names without a shard, so for all if the store has no shards
	heartbeats map[string]*heartbeat // by shard, see Sharder
	renewNowAt time.Time             // when renewNow was last called
}

// A pendingRelease is a grant of unknown outcome. The session releases it by its token as soon as
// the store answers. Otherwise its slot could stay taken for a TTL.
type pendingRelease struct {
	driver.Grant
	expiresAt time.Time // when the grant, if there was one, will have expired
}

// NewSession checks the options and the store, and whether they fit together. It starts nothing and
// does not call the store.
func NewSession(store DistributedLock, opts SessionOptions) (*Session, error) {
	opts = opts.withDefaults()
	errs := []error{opts.Validate()}
	if store == nil {
		errs = append(errs, errors.New("no store: pass a redislock or memlock store, or your own"))
	}
	caps := driver.CapabilitiesOf(store)
	if caps.Checker != nil {
		errs = append(errs, caps.Checker.Check())
	}
	if b := caps.TTLBounder; b != nil && opts.TTL > b.MaxTTL() {
		errs = append(errs, fmt.Errorf("TTL %v: this store takes at most %v (its QuarantineTTL): "+
			"use a shorter TTL, or raise QuarantineTTL on every host", opts.TTL, b.MaxTTL()))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("dlock: %w", err)
	}
	life, end := context.WithCancel(context.Background())
	s := &Session{
		life:         life,
		endLife:      end,
		calls:        storeCalls{store, opts.Hooks.Called},
		holder:       opts.Holder,
		ttl:          opts.TTL,
		trust:        trust(opts.TTL),
		storeTimeout: opts.StoreTimeout,
		hooks:        opts.Hooks,
		sharder:      caps.Sharder,
		multi:        caps.SharedLimiter != nil,
		rates:        caps.RateLimiter != nil,
		delays:       caps.Delayer != nil,
		expiryQueue: leaseList{
			node: func(l *Lease) *listNode { return &l.expiryNode },
			key:  func(l *Lease) time.Time { return l.sent.mono },
		},
	}
	s.main.init(s, "")
	return s, nil
}

// Holder returns the owner of the leases, as shown to operators.
func (s *Session) Holder() Holder { return s.holder }

// TTL returns the length of the leases.
func (s *Session) TTL() time.Duration { return s.ttl }

// Close stops the heartbeat. It makes one last attempt, limited by StoreTimeout, to release grants
// of unknown outcome. If that fails, it returns an error, and the grants expire within a TTL. It
// then waits up to StoreTimeout for hooks to handle the remaining events, and again up to
// StoreTimeout for the last hook to return. If a hook has not returned, the error names it.
//
// Release your leases first. A lease that is still held is no longer renewed and expires within a
// TTL.
func (s *Session) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.storeTimeout)
	defer cancel()
	s.mu.Lock()
	s.closed = true
	if s.expiryQueue.len == 0 && s.expiryTimer != nil {
		s.expiryTimer.Stop()
	}
	if s.expiryQueue.len == 0 {
		s.stopSleepTimer()
	}
	s.endLife()
	heartbeats := slices.Collect(s.allHeartbeats)
	for _, h := range heartbeats {
		h.stop()
		for h.beating {
			done := h.beatDone
			s.mu.Unlock()
			<-done // its call to the store ends with life
			s.mu.Lock()
		}
	}
	pending := make([][]pendingRelease, len(heartbeats))
	for i, h := range heartbeats {
		pending[i], h.pending = h.pending, nil
	}
	s.mu.Unlock()
	errs := make([]error, len(heartbeats))
	var all sync.WaitGroup
	for i := range pending { // in parallel, because one server may hang
		if len(pending[i]) > 0 {
			all.Go(func() { pending[i], errs[i] = s.releasePending(ctx, pending[i]) })
		}
	}
	all.Wait()
	s.mu.Lock()
	for i, h := range heartbeats {
		h.pending = pending[i] // for another call of Close
	}
	s.mu.Unlock()
	if hook := s.events.Close(s.storeTimeout); hook != "" {
		errs = append(errs, fmt.Errorf("dlock: the hook %s does not return", hook))
	}
	return errors.Join(errs...)
}

// acquire makes one attempt. It sends the request once more if the first reply is lost. The caller
// has waited since began. A mutex is a semaphore with 0 slots.
func (s *Session) acquire(ctx context.Context, began time.Time, m Semaphore, tick *driver.Tick) (*Lease, error) {
	name, slots := m.name, m.slots
	req := driver.Request{Name: name, Slots: slots, Shared: m.shared, Holder: s.holder, Token: crand.Text(), TTL: s.ttl}
	first := new(struct {
		lazyDeadline
		tick driver.Tick
	}) // a single allocation, because refused attempts are frequent
	if tick != nil {
		first.tick = *tick
		req.Tick = &first.tick
	}
	if err := req.Validate(); err != nil {
		return nil, err
	}
	if len(m.shared) > 0 && !s.multi {
		return nil, fmt.Errorf("%s: acquire: this store cannot take %d locks in one step: %w", name, 1+len(m.shared),
			errors.ErrUnsupported)
	}
	if !s.rates && slices.ContainsFunc(m.shared, func(l SemaphoreSpec) bool { return l.Rate > 0 }) {
		return nil, fmt.Errorf("%s: acquire: this store cannot bound the rate of starts: %w", name,
			errors.ErrUnsupported)
	}
	if tick != nil && tick.Delay > 0 && !s.delays {
		return nil, fmt.Errorf("%s: acquire: this store cannot keep a delay between leases: %w", name,
			errors.ErrUnsupported)
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
	first.parent, first.at = ctx, deadline.Add(-s.storeTimeout/2)
	grant, sent, err := s.ask(&first.lazyDeadline, req, false)
	unknown := isUnknown(err)
	if unknown && ctx.Err() == nil {
		// Perhaps only the reply was lost. The same token finds a grant that was already made.
		grant, sent, err = s.ask(&lazyDeadline{parent: ctx, at: deadline}, req, true)
	}
	if err == nil {
		t := now()
		_, total := t.since(sent)
		if total < s.trust {
			lease := newLease(ctx, s, grant, sent, t)
			if s.add(lease, t.mono.Add(s.trust-total), began) {
				return lease, nil
			}
			// The session was closed meanwhile and has no heartbeat to release the grant.
			ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
			defer cancel()
			_, _ = s.calls.release(ctx, lease.appendGrants(nil)) // if this fails, the grant expires within a TTL
			return nil, ErrClosed
		}
		err = errors.New("the answer came later than the lease can be trusted")
		unknown = true
	}
	if unknown {
		s.releaseLater(perhapsGranted(req)...)
	}
	if errors.Is(err, ErrNotAcquired) {
		if no, ok := errors.AsType[*NotAcquiredError](err); ok {
			return nil, no
		}
		return nil, &NotAcquiredError{Name: name, Slots: slots} // the store gave no reason
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s: acquire: %w", name, context.Cause(ctx))
	}
	return nil, &StoreError{Op: StoreOpAcquire, Name: name, Err: err}
}

// ask sends one request and checks the answer.
func (s *Session) ask(ctx *lazyDeadline, req driver.Request, again bool) (g driver.Grant, sent instant, err error) {
	defer ctx.end()
	sent = now()
	g, err = s.calls.acquire(ctx, req)
	if no, ok := errors.AsType[*NotAcquiredError](err); ok && no == nil {
		err = errors.New("the store refused with a nil *NotAcquiredError")
	}
	if err == nil {
		err = checkGrant(req, g, again)
	}
	return g, sent, err
}

// checkGrant returns an error if a grant does not match its request.
func checkGrant(req driver.Request, g driver.Grant, again bool) error {
	wrong := func(g driver.Grant, l SemaphoreSpec) error {
		slots := max(1, l.Slots, g.Info.SlotLimit)
		if again && l.Slots > 0 && g.Info.Version > 0 {
			slots = driver.MaxSlots // a limit may have been lowered since the first request
		}
		if g.Name != l.Name || g.Token != req.Token || g.Slots != l.Slots || g.Slot < 0 || g.Slot >= slots {
			return fmt.Errorf("the store granted something other than requested: slot %d of %d of %q",
				g.Slot, g.Slots, g.Name)
		}
		return nil
	}
	if err := wrong(g, SemaphoreSpec{Name: req.Name, Slots: req.Slots}); err != nil {
		return err
	}
	if len(g.Shared) != len(req.Shared) {
		return fmt.Errorf("the store granted something other than requested: slots of %d further semaphores, not %d",
			len(g.Shared), len(req.Shared))
	}
	for i, l := range req.Shared {
		if err := wrong(g.Shared[i], l); err != nil {
			return err
		}
	}
	return nil
}

// perhapsGranted returns the grants that the store may have made, to be released by their token.
func perhapsGranted(r driver.Request) []driver.Grant {
	list := []driver.Grant{{Name: r.Name, Slots: r.Slots, Slot: driver.AnySlot, Token: r.Token}}
	for _, l := range r.Shared {
		list = append(list, driver.Grant{Name: l.Name, Slots: l.Slots, Slot: driver.AnySlot, Token: r.Token})
	}
	return list
}

func isUnknown(err error) bool { return err != nil && !errors.Is(err, ErrNotAcquired) }

// releaseNow releases the grants of one lease, even if ctx has ended.
func (s *Session) releaseNow(ctx context.Context, grants []driver.Grant) error {
	call := &lazyDeadline{parent: context.WithoutCancel(ctx), at: time.Now().Add(s.storeTimeout)}
	defer call.end()
	results, err := s.calls.release(call, grants)
	if err != nil {
		s.releaseLater(grants...)
		return &StoreError{Op: StoreOpRelease, Name: grants[0].Name, Err: err}
	}
	var unknown, lost error
	for i, r := range results {
		switch g := grants[i]; {
		case r.Outcome == driver.GrantUnknown:
			s.releaseLater(g)
			unknown = cmp.Or[error](unknown, &StoreError{Op: StoreOpRelease, Name: g.Name,
				Err: cmp.Or(r.Err, errNoAnswer)})
		case r.Outcome == driver.GrantLost:
			lost = cmp.Or[error](lost, &LostError{Name: g.Name, Slot: g.Slot})
		}
	}
	return cmp.Or(unknown, lost)
}

// RenewalLateness returns how late the most overdue lease renewal is, or 0 if none is late. A
// renewal is late if it is not done StoreTimeout after it was due, a third of the TTL after the
// last one. RenewalLateness reads clocks and does not call the store.
func (s *Session) RenewalLateness() time.Duration {
	t := now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.expiryQueue.all {
		if l.heartbeat.renewQueue.has(l) {
			_, total := t.since(l.sent)
			return max(0, total-s.ttl/3-s.storeTimeout)
		}
	}
	return 0
}
