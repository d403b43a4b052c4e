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
)

const (
	// DefaultTTL is the length of a lease. It is how long the slot of a dead host stays taken, not
	// how long a run may take.
	DefaultTTL = 15 * time.Second
	// DefaultStoreTimeout bounds every call to the store.
	DefaultStoreTimeout = time.Second
)

// SessionOptions are the settings of a Session. The zero value is fine.
type SessionOptions struct {
	// TTL of the leases. They are renewed every third of it. At least three times StoreTimeout.
	// Default 15 s.
	TTL time.Duration
	// StoreTimeout bounds each acquire, each heartbeat call and each release. An acquire asks a
	// second time after half of it, so the store has to answer within that half. Default 1 s.
	StoreTimeout time.Duration
	// Holder is how operators see this process. Default NewHolder().
	Holder Holder
	// Hooks are told what the session does. Default: nobody is.
	Hooks Hooks
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
	if o.StoreTimeout < time.Millisecond || o.StoreTimeout > MaxTTL/3 {
		errs = append(errs, fmt.Errorf("StoreTimeout %v: must be 1ms to %v", o.StoreTimeout, MaxTTL/3))
	}
	timeout := min(max(o.StoreTimeout, time.Millisecond), MaxTTL/3)
	if o.TTL/3 < timeout {
		errs = append(errs, fmt.Errorf("TTL %v: must be at least three times StoreTimeout (%v), so that a heartbeat can fail and be repeated before the lease ends: use %v or more, or a shorter StoreTimeout",
			o.TTL, timeout, 3*timeout))
	}
	if o.TTL > MaxTTL {
		errs = append(errs, fmt.Errorf("TTL %v: must be at most %v: it is how long the slot of a dead host stays taken, not how long a run may take", o.TTL, MaxTTL))
	}
	return errors.Join(errs...)
}

// A Session holds the leases of one process on one store. It renews them together: each call takes
// up to 500 of those renewed longest ago (all, if there are no more), and there is a call per 500
// leases in every third of the TTL, spread evenly over it. A lease has its turn at most a third of
// the TTL after its last renewal, or TTL/10 to 3 TTL/20 after one that was not answered; in the
// last third of the time for which a lease is trusted the store is asked every half of
// StoreTimeout. For a store with shards (see Sharder) all this holds for each shard by itself. A
// Session has no goroutine while it waits. Its methods may be called from any goroutine.
type Session struct {
	store        DistributedLock
	holder       Holder
	ttl          time.Duration
	trust        time.Duration
	storeTimeout time.Duration
	hooks        Hooks
	sharder      Sharder // nil: the store has no shards

	life    context.Context // of the heartbeat; Close ends it, so that it need not wait for a store that hangs
	endLife context.CancelFunc

	mu       sync.Mutex
	closed   bool
	windows  line        // every held lease, by when its trust window began
	closer   *time.Timer // closes the windows, see closeWindows
	closerAt time.Time   // when it goes off; zero: it does not
	watched  int         // leases of which somebody waits for the end
	sleeper  *time.Timer // looks for sleep of the machine, if there are any
	slept    time.Duration

	main    heart             // of what lives on no shard: all, if the store has none
	hearts  map[string]*heart // of the shards of a store that is several servers, see Sharder
	hurried time.Time         // when all leases were last told not to wait for their turn
}

// unsettled is a grant of unknown outcome, to be released by token as soon as the store answers.
type unsettled struct {
	Grant
	ends time.Time // when it has ended by itself, if it was made at all, and is no longer worth a call
}

// NewSession checks the options against each other and against the store. Nothing is started and
// the store is not called.
func NewSession(store DistributedLock, opts SessionOptions) (*Session, error) {
	opts = opts.withDefaults()
	errs := []error{opts.Validate()}
	if store == nil {
		errs = append(errs, errors.New("no store: pass a redislock or memlock store, or your own"))
	}
	caps := CapabilitiesOf(store)
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
		store:        store,
		holder:       opts.Holder,
		ttl:          opts.TTL,
		trust:        trust(opts.TTL),
		storeTimeout: opts.StoreTimeout,
		hooks:        opts.Hooks,
		sharder:      caps.Sharder,
		windows:      line{place: func(l *Lease) *place { return &l.window }, key: func(l *Lease) time.Time { return l.sent.mono }},
	}
	s.main.init(s, "")
	return s, nil
}

// Holder is how operators see the leases of this session.
func (s *Session) Holder() Holder { return s.holder }

// TTL is the length of its leases.
func (s *Session) TTL() time.Duration { return s.ttl }

// Close ends the heartbeat and makes one last try, bounded by StoreTimeout, to give back what is
// unsettled. Release your leases first: one that is still held is no longer renewed and ends within
// a TTL.
func (s *Session) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.storeTimeout)
	defer cancel()
	s.mu.Lock()
	s.closed = true
	if s.windows.len == 0 && s.closer != nil {
		s.closer.Stop()
	}
	if s.windows.len == 0 {
		s.stopSleeper()
	}
	s.endLife()
	hearts := slices.Collect(s.allHearts)
	for _, h := range hearts {
		h.stop()
		for h.beating {
			ended := h.beatEnd
			s.mu.Unlock()
			<-ended // its call to the store ends with life
			s.mu.Lock()
		}
	}
	owed := make([][]unsettled, len(hearts))
	for i, h := range hearts {
		owed[i], h.unsettled = h.unsettled, nil
	}
	s.mu.Unlock()
	errs := make([]error, len(hearts))
	var all sync.WaitGroup
	for i := range owed { // side by side: one may be on a server that hangs
		if len(owed[i]) > 0 {
			all.Go(func() { owed[i], errs[i] = s.settleAll(ctx, owed[i]) })
		}
	}
	all.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, h := range hearts {
		h.unsettled = owed[i] // for another Close
	}
	return errors.Join(errs...)
}

// acquire makes one attempt: one request, and if its reply is lost the same request once more.
func (s *Session) acquire(ctx context.Context, name string, slots int, tick *Tick) (*Lease, error) {
	req := Request{Name: name, Slots: slots, Holder: s.holder, Token: crand.Text(), TTL: s.ttl}
	first := new(struct {
		bounded
		tick Tick
	}) // in one piece: an attempt that is refused is frequent, and leaves nothing else behind but its token
	if tick != nil {
		first.tick = *tick
		req.Tick = &first.tick
	}
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
	first.parent, first.at = ctx, deadline.Add(-s.storeTimeout/2)
	grant, sent, err := s.ask(&first.bounded, req, false)
	unknown := isUnknown(err)
	if unknown && ctx.Err() == nil {
		// The request may have been carried out and only its reply lost: the same token finds that
		// grant.
		grant, sent, err = s.ask(&bounded{parent: ctx, at: deadline}, req, true)
	}
	if err == nil {
		t := now()
		_, total := t.since(sent)
		if total < s.trust {
			lease := newLease(ctx, s, grant, sent, t)
			if s.add(lease, t.mono.Add(s.trust-total)) {
				return lease, nil
			}
			// Closed meanwhile: nothing settles any more, so give it back here.
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

// ask makes one request.
func (s *Session) ask(ctx *bounded, req Request, again bool) (g Grant, sent instant, err error) {
	defer ctx.end()
	sent = now()
	g, err = s.callAcquire(ctx, req)
	if no, ok := errors.AsType[*NotAcquiredError](err); ok && no == nil {
		err = errors.New("the store refused with a nil *NotAcquiredError")
	}
	slots := max(1, req.Slots, g.Info.SlotLimit)
	if again && req.Slots > 0 && g.Info.Version > 0 {
		slots = MaxSlots // since the first request a limit may have been lowered
	}
	if err == nil && (g.Name != req.Name || g.Token != req.Token || g.Slots != req.Slots || g.Slot < 0 || g.Slot >= slots) {
		err = fmt.Errorf("the store granted something else than was asked for: slot %d of %d of %q", g.Slot, g.Slots, g.Name)
	}
	return g, sent, err
}

func isUnknown(err error) bool { return err != nil && !errors.Is(err, ErrNotAcquired) }

// releaseNow gives one grant back, on a context of its own.
func (s *Session) releaseNow(ctx context.Context, g Grant) error {
	call := &bounded{parent: context.WithoutCancel(ctx), at: time.Now().Add(s.storeTimeout)}
	defer call.end()
	results, err := s.callRelease(call, []Grant{g})
	if err == nil && results[0].Outcome == GrantUnknown {
		err = cmp.Or(results[0].Err, errNoAnswer)
	}
	if err != nil {
		s.settle(g)
		return &StoreError{Op: "release", Name: g.Name, Err: err}
	}
	if results[0].Outcome == GrantLost {
		return &LostError{Name: g.Name, Slot: g.Slot}
	}
	return nil
}

// RenewalLate is by how much the renewal of a lease is overdue: how long after the next beat, and
// the time that it may take, the one that was renewed longest ago is still not renewed. 0: none is.
// It asks the clocks, not the store.
func (s *Session) RenewalLate() time.Duration {
	t := now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.windows.all {
		if l.heart.turns.has(l) {
			_, total := t.since(l.sent)
			return max(0, total-s.ttl/3-s.storeTimeout)
		}
	}
	return 0
}
