package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
)

// An admission checks whether live hosts of another environment are in the registry. If there are
// any, this process is refused permanently. Parts ask it before they take work, and Run repeats the
// check until the store answers.
type admission struct {
	registry *Registry
	calls    singleflight.Group
	refusal  context.Context // canceled when this process is refused; its cause says why
	refuse   context.CancelCauseFunc
	asking   atomic.Bool
	answered atomic.Bool
}

func newAdmission(r *Registry) *admission {
	a := &admission{registry: r}
	a.refusal, a.refuse = context.WithCancelCause(context.Background())
	a.answered.Store(r.config.Environment == "") // without an environment there is no conflict
	return a
}

// refused returns why this process is refused, or nil if it is not.
func (a *admission) refused() error { return context.Cause(a.refusal) }

// Admit checks that this process may take work shared by its fleet. Schedulers, workers, relays and
// electors passed to Add call it at the start of their Run. For your own loops, call it before they
// begin:
//
//	ctx, cancel := context.WithCancelCause(ctx)
//	stop, err := registry.Admit(ctx, cancel)
//
// If a live host of another Environment is in the registry, Admit returns an error that describes
// the repair. It makes up to three calls to the store and takes at most Config.StoreTimeout.
//
// If the store does not answer, Admit returns no error, because an unavailable registry must not
// prevent work. Run then repeats the check with its heartbeats until the store answers. If the
// process is refused, Run calls the function refused once with the error, unless stop was called
// before. refused may be nil. A refused process stays refused until it is restarted.
func (r *Registry) Admit(ctx context.Context, refused func(error)) (stop func(), err error) {
	a := r.admission
	if !a.answered.Load() {
		timeout := time.NewTimer(r.config.StoreTimeout)
		defer timeout.Stop()
		select {
		case <-a.calls.DoChan("", a.once):
		case <-timeout.C:
		case <-ctx.Done():
		}
	}
	if err := a.refused(); err != nil {
		return func() {}, err
	}
	if refused == nil {
		return func() {}, nil
	}
	forget := context.AfterFunc(a.refusal, func() { refused(a.refused()) })
	return func() { forget() }, nil
}

// ask asks the registry unless it has already answered. Concurrent callers share one call.
func (a *admission) ask() { _, _, _ = a.calls.Do("", a.once) }

func (a *admission) once() (none any, err error) {
	if a.answered.Load() {
		return nil, nil
	}
	a.asking.Store(true)
	defer a.asking.Store(false)
	r := a.registry
	// Read before this process writes its own row. A refused process then never appears alive, so
	// it does not cause a host of the other environment to be refused.
	others, err := a.others()
	written := !r.writer.lastWrite().IsZero()
	if err == nil && len(others) == 0 && !written && r.life.Begun() {
		// If two processes start at the same time, each writes before it reads again, so at least
		// one of them sees the other.
		if _, err = r.writer.write(context.Background(), false); err == nil {
			written = true
			others, err = a.others()
		}
	}
	switch {
	case err != nil: // faults counts and logs it
	case len(others) > 0:
		a.refuse(r.environmentError(others))
		a.answered.Store(true)
		a.say(others)
	case written:
		a.answered.Store(true)
	}
	return nil, nil
}

// others reads the live hosts of other environments.
func (a *admission) others() ([]Host, error) {
	r := a.registry
	r.reader.refresh(context.Background(), 0, false)
	hosts, _ := r.reader.parts()
	return r.config.others(hosts.value.hosts), hosts.err
}

// say reports the refusal in the log of this host and to the other hosts.
func (a *admission) say(others []Host) {
	r := a.registry
	r.faults.log(slog.LevelError, "cluster: the registry refused this process: it stops its timers, runs and "+
		"deliveries", "err", a.refused())
	h := r.config.Holder
	r.pending.addEvent(Event{ID: idOf(string(EventHostRefused), h.String()), Kind: EventHostRefused, Holder: h,
		Text: clean(fmt.Sprintf("its environment is %s, that of %s is %s", r.config.Environment, others[0].Holder,
			others[0].Environment), maxTextLen)}, time.Now())
	_, _ = r.writer.write(context.Background(), false) // if this fails, Run writes it later
}

// others returns the live hosts whose environment differs from that of this process.
func (c Config) others(hosts []Host) (others []Host) {
	for i := range hosts {
		if h := &hosts[i]; h.Holder != c.Holder && h.State.Live() && h.Environment != "" && c.Environment != "" &&
			h.Environment != c.Environment {
			others = append(others, *h)
		}
	}
	return others
}

// environmentError names the environment of the store and describes the repair.
func (r *Registry) environmentError(others []Host) error {
	own, theirs := r.config.Environment, others[0].Environment
	if slices.ContainsFunc(others, func(h Host) bool { return h.Environment != theirs }) {
		theirs += "\" and others, such as \"" + others[len(others)-1].Environment
	}
	return errors.New("cluster: this process takes no work: the store belongs to environment \"" + theirs +
		fmt.Sprintf("\" (%d live hosts, such as %s), and this process is of %q. Do one of these:\n"+
			"\tset Config.Environment of package cluster right, if %q is wrong\n"+
			"\tgive %q a database, a schema or a prefix of its own, for the registry and for all that it runs",
			len(others), others[0].Holder, own, own, own))
}
