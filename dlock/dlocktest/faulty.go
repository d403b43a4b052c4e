package dlocktest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

// An Op is a kind of call to a store.
type Op uint8

const (
	OpAcquire Op = iota // TryAcquire
	OpExtend
	OpRelease
	OpControl // Update, Value, Inspect and Revoke of a driver.Controller
)

func (o Op) String() string {
	switch o {
	case OpAcquire:
		return "acquire"
	case OpExtend:
		return "extend"
	case OpRelease:
		return "release"
	case OpControl:
		return "control"
	default:
		return fmt.Sprintf("op %d", o)
	}
}

// ErrInjected matches the errors that Faulty injects, except those passed to Error.
var ErrInjected = errors.New("injected fault")

// A Fault is a way in which a call fails. With the zero Fault, the call does not fail.
type Fault struct {
	kind faultKind
	err  error
	d    time.Duration
}

type faultKind uint8

const (
	none faultKind = iota
	failed
	lostReply
	silentReply
	late
	hang
	panics
	slow
	short
	patchy
)

var (
	// LostReply applies the request, and the reply is lost immediately, as when a connection is
	// reset.
	LostReply = Fault{kind: lostReply}
	// SilentReply applies the request and does not answer until the context ends.
	SilentReply = Fault{kind: silentReply}
	// Hang does not apply the request and does not answer until the context ends.
	Hang = Fault{kind: hang}
	// Panic does not apply the request and panics.
	Panic = Fault{kind: panics}
	// Short applies the request and returns one result too few. It has no effect on an acquire,
	// which has no results.
	Short = Fault{kind: short}
)

// Error does not apply the request and returns err.
func Error(err error) Fault { return Fault{kind: failed, err: err} }

// Late delays the request and never answers. The request is applied after d, whether or not the
// caller still waits. The call returns an error when its context ends.
func Late(d time.Duration) Fault { return Fault{kind: late, d: d} }

// Patchy applies the request for every other grant, beginning with the first. For the other grants
// it answers GrantUnknown with err, as a cluster with a failed node does. It has no effect on an
// acquire.
func Patchy(err error) Fault { return Fault{kind: patchy, err: err} }

// Slow applies the request immediately and delivers the answer after d, unless the context ends
// first.
func Slow(d time.Duration) Fault { return Fault{kind: slow, d: d} }

// Faulty wraps a store and makes its calls fail on demand. Use one Faulty per host to cut that host
// off from a store that other hosts still reach. Its methods are safe for concurrent use.
//
// In a test with testing/synctest, create it inside the bubble.
type Faulty struct {
	store driver.Store
	caps  driver.Capabilities // optional interfaces of store

	mu       sync.Mutex
	standing map[Op]Fault
	queue    []*limited
	calls    map[Op]int
	healed   chan struct{} // closed by Heal
	late     map[*lateRequest]struct{}
}

// A lateRequest is a request on its way to the store. It uses a timer instead of a goroutine, so
// that a request still on its way at the end of a test is not reported as a leak.
type lateRequest struct {
	timer  *time.Timer
	arrive func() // runs once; returns when the request is applied
}

// A limited fault applies to a limited number of calls.
type limited struct {
	ops   []Op
	fault Fault
	left  int
}

// NewFaulty wraps a store. It only counts calls until a fault is injected.
func NewFaulty(store driver.Store) *Faulty {
	return &Faulty{
		store:    store,
		caps:     driver.CapabilitiesOf(store),
		standing: make(map[Op]Fault),
		calls:    make(map[Op]int),
		healed:   make(chan struct{}),
		late:     make(map[*lateRequest]struct{}),
	}
}

// Inject makes every later call of ops fail until Heal or another Inject. Without ops, it affects
// all calls.
func (f *Faulty) Inject(fault Fault, ops ...Op) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, op := range orAll(ops) {
		f.standing[op] = fault
	}
}

// InjectN makes the next n calls of ops fail, n in total. Without ops, it affects all calls. Faults
// from InjectN are used up in order, before any from Inject. The zero Fault lets n calls through.
func (f *Faulty) InjectN(n int, fault Fault, ops ...Op) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n > 0 {
		f.queue = append(f.queue, &limited{ops: orAll(ops), fault: fault, left: n})
	}
}

// Heal ends all faults. Calls that hang return. Requests that Late delayed reach the store before
// Heal returns.
func (f *Faulty) Heal() {
	f.mu.Lock()
	clear(f.standing)
	f.queue = nil
	close(f.healed)
	f.healed = make(chan struct{})
	late := slices.Collect(maps.Keys(f.late))
	f.mu.Unlock()
	for _, request := range late {
		request.timer.Stop()
		request.arrive()
	}
}

// Calls returns how many calls of op were made, whether they failed or not.
func (f *Faulty) Calls(op Op) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

// TryAcquire implements driver.Store.
func (f *Faulty) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	type answer struct {
		grant driver.Grant
		err   error
	}
	// The answer includes a refusal. A refusal is delivered as late as a grant.
	got, err := call(ctx, f, OpAcquire, func(ctx context.Context) (answer, error) {
		grant, err := f.store.TryAcquire(ctx, req)
		return answer{grant, err}, nil
	}, nil, nil)
	if err != nil {
		return driver.Grant{}, err
	}
	return got.grant, got.err
}

// Extend implements driver.Store.
func (f *Faulty) Extend(ctx context.Context, ttl time.Duration, grants ...driver.Grant) ([]driver.Result, error) {
	return f.each(ctx, OpExtend, grants, func(ctx context.Context, grants []driver.Grant) ([]driver.Result, error) {
		return f.store.Extend(ctx, ttl, grants...)
	})
}

// Release implements driver.Store.
func (f *Faulty) Release(ctx context.Context, grants ...driver.Grant) ([]driver.Result, error) {
	return f.each(ctx, OpRelease, grants, func(ctx context.Context, grants []driver.Grant) ([]driver.Result, error) {
		return f.store.Release(ctx, grants...)
	})
}

func (f *Faulty) each(ctx context.Context, op Op, grants []driver.Grant,
	send func(context.Context, []driver.Grant) ([]driver.Result, error)) ([]driver.Result, error) {
	grants = slices.Clone(grants) // a late request must not see later changes to the caller's slice
	apply := func(ctx context.Context) ([]driver.Result, error) { return send(ctx, grants) }
	cut := func(results []driver.Result) []driver.Result { return results[:max(0, len(results)-1)] }
	patch := func(ctx context.Context, unknown error) ([]driver.Result, error) {
		var reached []driver.Grant
		for i := 0; i < len(grants); i += 2 {
			reached = append(reached, grants[i])
		}
		answers, err := send(ctx, reached)
		if err != nil {
			return nil, err
		}
		results := make([]driver.Result, len(grants))
		for i := range results {
			if i%2 == 0 && i/2 < len(answers) {
				results[i] = answers[i/2]
			} else {
				results[i] = driver.Result{Outcome: driver.GrantUnknown, Err: unknown}
			}
		}
		return results, nil
	}
	return call(ctx, f, op, apply, cut, patch)
}

// List implements driver.Lister. Faults do not affect it. If the store is not a driver.Lister, the
// error matches errors.ErrUnsupported.
func (f *Faulty) List(ctx context.Context, name string, slots int) ([]driver.LeaseInfo, error) {
	if l := f.caps.Lister; l != nil {
		return l.List(ctx, name, slots)
	}
	return nil, fmt.Errorf("list %s: %w", name, errors.ErrUnsupported)
}

// Enumerate implements driver.Enumerator. Faults do not affect it. If the store is not a
// driver.Enumerator, the error matches errors.ErrUnsupported.
func (f *Faulty) Enumerate(ctx context.Context, after string, limit int) (driver.LeasePage, error) {
	if e := f.caps.Enumerator; e != nil {
		return e.Enumerate(ctx, after, limit)
	}
	return driver.LeasePage{}, fmt.Errorf("%s does not list all its leases: %w", f, errors.ErrUnsupported)
}

// Update implements driver.Controller. If the store is not one, the error matches
// errors.ErrUnsupported.
func (f *Faulty) Update(ctx context.Context, name string, update driver.Update) error {
	_, err := f.control(ctx, func(ctx context.Context, c driver.Controller) ([]driver.ControlState, error) {
		return nil, c.Update(ctx, name, update)
	})
	return err
}

// Inspect implements driver.Controller. If the store is not one, the error matches
// errors.ErrUnsupported.
func (f *Faulty) Inspect(ctx context.Context, names ...string) ([]driver.ControlState, error) {
	return f.control(ctx, func(ctx context.Context, c driver.Controller) ([]driver.ControlState, error) {
		return c.Inspect(ctx, names...)
	})
}

// Value implements driver.Controller. If the store is not one, the error matches
// errors.ErrUnsupported.
func (f *Faulty) Value(ctx context.Context, name string) (driver.ValueState, error) {
	c := f.caps.Controller
	if c == nil {
		return driver.ValueState{}, fmt.Errorf("control: %w", errors.ErrUnsupported)
	}
	return call(ctx, f, OpControl, func(ctx context.Context) (driver.ValueState, error) {
		return c.Value(ctx, name)
	}, nil, nil)
}

// Revoke implements driver.Controller. If the store is not one, the error matches
// errors.ErrUnsupported.
func (f *Faulty) Revoke(ctx context.Context, name string, slot int, fence driver.Fence, by driver.Cause) error {
	_, err := f.control(ctx, func(ctx context.Context, c driver.Controller) ([]driver.ControlState, error) {
		return nil, c.Revoke(ctx, name, slot, fence, by)
	})
	return err
}

func (f *Faulty) control(ctx context.Context, apply func(context.Context, driver.Controller) ([]driver.ControlState,
	error)) ([]driver.ControlState, error) {
	c := f.caps.Controller
	if c == nil {
		return nil, fmt.Errorf("control: %w", errors.ErrUnsupported)
	}
	cut := func(list []driver.ControlState) []driver.ControlState { return list[:max(0, len(list)-1)] }
	return call(ctx, f, OpControl, func(ctx context.Context) ([]driver.ControlState, error) {
		return apply(ctx, c)
	}, cut, nil)
}

// MaxTTL implements driver.TTLBounder. If the store is not one, it returns driver.MaxTTL.
func (f *Faulty) MaxTTL() time.Duration {
	if b := f.caps.TTLBounder; b != nil {
		return b.MaxTTL()
	}
	return math.MaxInt64
}

// MaxSlots implements driver.SlotBounder. If the store is not one, it returns driver.MaxSlots.
func (f *Faulty) MaxSlots() int {
	if b := f.caps.SlotBounder; b != nil {
		return b.MaxSlots()
	}
	return driver.MaxSlots
}

// Shard implements driver.Sharder. Faults do not affect it. If the store is not a driver.Sharder,
// all names are in one shard.
func (f *Faulty) Shard(name string) string {
	if s := f.caps.Sharder; s != nil {
		return s.Shard(name)
	}
	return ""
}

// CheckShared implements driver.SharedLimiter. Faults do not affect it. If the store is not a
// driver.SharedLimiter, the error matches errors.ErrUnsupported.
func (f *Faulty) CheckShared(name string, shared ...string) error {
	if m := f.caps.SharedLimiter; m != nil {
		return m.CheckShared(name, shared...)
	}
	return fmt.Errorf("%s takes one lock at a time: %w", f, errors.ErrUnsupported)
}

// CheckRate implements driver.RateLimiter. Faults do not affect it. If the store is not a
// driver.RateLimiter, the error matches errors.ErrUnsupported.
func (f *Faulty) CheckRate(per time.Duration) error {
	if r := f.caps.RateLimiter; r != nil {
		return r.CheckRate(per)
	}
	return fmt.Errorf("%s bounds no rate of starts: %w", f, errors.ErrUnsupported)
}

// CheckDelay implements driver.Delayer. Faults do not affect it. If the store is not a
// driver.Delayer, the error matches errors.ErrUnsupported.
func (f *Faulty) CheckDelay(delay time.Duration) error {
	if d := f.caps.Delayer; d != nil {
		return d.CheckDelay(delay)
	}
	return fmt.Errorf("%s keeps no delay: %w", f, errors.ErrUnsupported)
}

// String returns the name of the store.
func (f *Faulty) String() string {
	if s, ok := f.store.(fmt.Stringer); ok {
		return s.String()
	}
	return fmt.Sprintf("%T", f.store)
}

// call makes one call to the store with the next fault, if there is one. cut shortens an answer,
// and patch applies part of the request. Both are nil for a call with a single answer.
func call[A any](ctx context.Context, f *Faulty, op Op, apply func(context.Context) (A, error),
	cut func(A) A, patch func(context.Context, error) (A, error),
) (A, error) {
	var nothing A
	fault, healed := f.next(op)
	switch fault.kind {
	case failed:
		return nothing, fault.err
	case lostReply:
		_, _ = apply(ctx)
		return nothing, fmt.Errorf("%s: connection reset: %w", op, ErrInjected)
	case silentReply:
		_, _ = apply(ctx)
		return nothing, silence(ctx, op, healed)
	case late:
		if ctx.Err() == nil { // a request whose context has ended is not sent
			f.deliver(ctx, fault.d, healed, func(ctx context.Context) { _, _ = apply(ctx) })
		}
		return nothing, silence(ctx, op, healed)
	case hang:
		return nothing, silence(ctx, op, healed)
	case panics:
		panic(fmt.Sprintf("dlocktest: %s: injected panic", op))
	case slow:
		answer, err := apply(ctx)
		timer := time.NewTimer(fault.d)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return nothing, fmt.Errorf("%s: %w: %w", op, ErrInjected, ctx.Err())
		case <-healed:
		case <-timer.C:
		}
		return answer, err
	case short:
		answer, err := apply(ctx)
		if err == nil && cut != nil {
			answer = cut(answer)
		}
		return answer, err
	case patchy:
		if patch != nil {
			return patch(ctx, fault.err)
		}
	}
	return apply(ctx)
}

// next counts a call and returns its fault.
func (f *Faulty) next(op Op) (Fault, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[op]++
	for i, l := range f.queue {
		if slices.Contains(l.ops, op) {
			if l.left--; l.left == 0 {
				f.queue = slices.Delete(f.queue, i, i+1)
			}
			return l.fault, f.healed
		}
	}
	return f.standing[op], f.healed
}

// deliver applies a late request after d or when Heal is called.
func (f *Faulty) deliver(ctx context.Context, d time.Duration, healed <-chan struct{}, apply func(context.Context)) {
	request := new(lateRequest)
	request.arrive = sync.OnceFunc(func() {
		// The request is still on its way even if the caller has returned.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		apply(ctx)
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.late, request)
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-healed: // healed after the fault was chosen
		d = 0
	default:
	}
	request.timer = time.AfterFunc(d, request.arrive)
	f.late[request] = struct{}{}
}

// silence blocks until the context ends or Heal is called.
func silence(ctx context.Context, op Op, healed <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("%s: %w: %w", op, ErrInjected, ctx.Err())
	case <-healed:
		return fmt.Errorf("%s: connection reset: %w", op, ErrInjected)
	}
}

func orAll(ops []Op) []Op {
	if len(ops) == 0 {
		return []Op{OpAcquire, OpExtend, OpRelease, OpControl}
	}
	return slices.Clone(ops)
}
