package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/internal/lifecycle"
	"github.com/tickslot/tickslot/internal/notify"
)

// Run takes part in the election of a role until ctx ends. It combines [New] and [Elector.Run].
func Run(ctx context.Context, session *dlock.Session, role Role) error {
	e, err := New(session, role)
	if err != nil {
		return err
	}
	return e.Run(ctx)
}

// An Elector takes part in the election of a role on behalf of one host. Its methods may be called
// from any goroutine.
type Elector struct {
	session  *dlock.Session
	slots    dlock.Semaphore
	role     Role
	metrics  *metrics // nil: no Registerer
	life     lifecycle.Life
	reporter *notify.Reporter

	backOffs int // after failures, in a row; used by Run's goroutine only

	mu   sync.Mutex
	view view
}

// New returns an Elector, or every fault of the role. It starts nothing, and does not call the
// store. Others may use the session, too; it must stay open until Run has returned.
func New(session *dlock.Session, role Role) (*Elector, error) {
	role = role.withDefaults()
	errs := role.validate()
	if session == nil {
		errs = errors.Join(errs, errors.New("no session: dlock.NewSession makes one"))
	}
	if errs != nil {
		return nil, fmt.Errorf("leader: role %.60q: %w", role.Name, errs)
	}
	e := &Elector{
		session:  session,
		slots:    session.Semaphore(lockPrefix+role.Name, role.Max),
		role:     role,
		view:     view{state: StateStopped},
		reporter: notify.NewReporter("leader", role.Logger),
		life:     lifecycle.Life{Prefix: fmt.Sprintf("leader: role %q", role.Name), Type: "Elector"},
	}
	if role.Registerer != nil {
		e.metrics = newMetrics(e)
		if err := role.Registerer.Register(e.metrics); err != nil {
			return nil, fmt.Errorf("leader: role %.60q: Registerer: %w", role.Name, err)
		}
	}
	return e, nil
}

// Run takes part in the election until ctx ends, then waits for the function, releases the role and
// returns nil. It calls the function whenever this host is elected, and never while an earlier call
// is still running.
//
// It returns an error if it was called before, if the session is closed, or if the store's first
// answer is that it is not set up correctly ([dlock.ErrSetup]); and a [StuckError] if the function
// does not return. Any other failure, such as a store that is down, is logged and retried.
func (e *Elector) Run(ctx context.Context) error {
	if err := e.life.Begin(ctx); err != nil {
		return err
	}
	if e.metrics != nil {
		defer e.role.Registerer.Unregister(e.metrics)
	}
	e.began()
	err := e.life.Work(ctx, e.loop)
	e.stopped(err)
	return err
}

// AdmitBy makes Run call ask before it takes part. If ask returns an error, Run does not take part;
// if ask later calls refused, Run ends this host's term and returns. Registry.Add of package
// cluster calls AdmitBy, so that a process that uses the store of another environment leads
// nothing.
func (e *Elector) AdmitBy(ask func(ctx context.Context, refused func(error)) (stop func(), err error)) {
	e.life.AdmitBy(ask)
}

func (e *Elector) loop(ctx context.Context) error {
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-next.C:
		}
		if ctx.Err() != nil {
			return nil
		}
		wait, err := e.try(ctx)
		if err != nil || ctx.Err() != nil {
			return err
		}
		e.setRetryIn(wait)
		next.Reset(wait)
	}
}

// try asks the store once, and leads if the store grants the role. It returns how long to wait
// before the next try.
func (e *Elector) try(ctx context.Context) (wait time.Duration, err error) {
	began := time.Now()
	lease, err := e.slots.TryAcquire(ctx)
	switch {
	case err == nil && ctx.Err() != nil:
		_ = lease.Release(ctx) // after an error the session tries again, or the lease expires
		return 0, nil
	case err == nil:
		return e.lead(ctx, lease)
	case ctx.Err() != nil:
		return 0, nil
	case errors.Is(err, dlock.ErrClosed):
		return 0, fmt.Errorf("leader: role %q: %w", e.role.Name, err)
	}
	if no, ok := errors.AsType[*dlock.NotAcquiredError](err); ok {
		e.refused(no)
	} else if answered := e.failed(err); !answered && errors.Is(err, dlock.ErrSetup) {
		return 0, fmt.Errorf("leader: role %q: %w", e.role.Name, err)
	}
	return e.interval() - time.Since(began), nil
}

// lead calls the function with a lease, and releases the lease when the function has returned. It
// returns when to try again, or a StuckError.
func (e *Elector) lead(ctx context.Context, lease *dlock.Lease) (wait time.Duration, err error) {
	term := &Term{e.role.Name, lease}
	// Derived from the lease's context, so that losing the lease ends it directly.
	work, stop := context.WithCancelCause(lease.Context())
	defer stop(nil)
	defer context.AfterFunc(ctx, func() { stop(context.Cause(ctx)) })()
	e.elected(term)
	ended := guard.Go("function", func() error { return e.role.Run(work, term) }) // it may never return
	select {
	case err = <-ended:
	case <-work.Done():
		e.ending(lease.Err())
		var returned bool // it may take any time, until Run has to end
		if err, returned = lifecycle.AwaitEnd(ctx, ended, e.role.StopTimeout); !returned {
			lease.StopRenewing()
			return 0, &StuckError{e.role.Name}
		}
		if p := guard.Panicked(err); p != nil {
			e.log(slog.LevelError, "leader: the function panicked after its context had ended", "err", p, "stack",
				string(p.Stack))
		}
	}
	lost := lease.Err()
	if released := lease.Release(ctx); released != nil && lost == nil {
		e.log(slog.LevelWarn, "leader: the store did not answer the release: another host can lead within a TTL",
			"err", released)
	}
	switch {
	case lost != nil:
		return e.ended(OutcomeLeaseLost, lost), nil
	case ctx.Err() != nil:
		return e.ended(OutcomeStopped, nil), nil
	case err != nil:
		return e.ended(OutcomeFailed, err), nil
	default:
		return e.ended(OutcomeReturned, nil), nil
	}
}

// interval returns the time between two tries. It is random, so that hosts that started together
// drift apart. It is at most RetryInterval, because that is how long the end of a term may stay
// unnoticed.
func (e *Elector) interval() time.Duration {
	i := e.role.RetryInterval
	return i*4/5 + rand.N(i/5)
}
