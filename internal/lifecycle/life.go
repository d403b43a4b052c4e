package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/internal/guard"
)

// A Phase is a stage in the life of a service.
type Phase string

// The phases in order. A service may skip some.
const (
	Created  Phase = "created"  // Run was not called, or is asking whether the service may begin
	Running  Phase = "running"  // work begins
	PreStop  Phase = "pre_stop" // work still begins, but Ready fails
	Draining Phase = "draining" // Run waits for work that has begun
	Stopped  Phase = "stopped"  // Run has returned or is about to
)

var order = map[Phase]int{Created: 0, Running: 1, PreStop: 2, Draining: 3, Stopped: 4}

// An Ask asks once, within a bounded time, whether the service may begin. It may not begin if it
// was started on the store of another environment. An error or a panic is a refusal. For a later
// refusal, refused is called with the error, unless stop was called before. stop may be nil.
// Registry.Admit of package cluster is an Ask.
type Ask = func(ctx context.Context, refused func(error)) (stop func(), err error)

// A Life is the life of a service: it runs once, if permitted, in phases that never go back. Set
// its exported fields before use. Its methods may be called from any goroutine.
type Life struct {
	Prefix    string    // prefix of the errors of Begin, such as "durable"
	Type      string    // type of the service for the errors of Begin, such as "Worker"
	Is        string    // subject of the errors of probes, such as "worker is"
	CreatedAt time.Time // start of the phase Created, for Current

	now atomic.Pointer[reached] // written with mu held; nil if Created

	mu      sync.Mutex
	begun   bool
	asks    []Ask
	inside  context.Context // context of the work; nil before Work is called
	close   context.CancelCauseFunc
	stops   []func()
	late    sync.WaitGroup // asks that were added after Work was called
	left    bool           // Work has ended
	refusal error          // the first refusal
}

// reached is a phase and when it was entered.
type reached struct {
	phase Phase
	at    time.Time
}

// Begin records the first call of Run. It returns an error if ctx is nil or Run was called before.
func (l *Life) Begin(ctx context.Context) error {
	if ctx == nil {
		return errors.New(l.Prefix + ": the context is nil: use context.Background()")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begun {
		return errors.New(l.Prefix + ": Run was called before: make another " + l.Type)
	}
	l.begun = true
	return nil
}

// Begun reports whether Run was called.
func (l *Life) Begun() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.begun
}

// Work asks whether the service may begin, and calls work unless it is refused. The context of work
// ends when ctx does, or when the service is refused later. Work returns the refusal, joined with
// the error of work. The service is then Stopped. Call it once, after Begin.
func (l *Life) Work(ctx context.Context, work func(ctx context.Context) error) error {
	l.mu.Lock()
	l.inside, l.close = context.WithCancelCause(ctx)
	inside, asks := l.inside, l.asks
	l.mu.Unlock()
	defer l.Enter(Stopped)
	defer l.leave()
	for _, ask := range asks {
		l.ask(inside, ask)
	}
	if err := l.Refused(); err != nil {
		return err
	}
	err := work(inside)
	if refused := l.Refused(); refused != nil {
		return errors.Join(refused, err)
	}
	return err
}

func (l *Life) leave() {
	l.mu.Lock()
	l.left = true
	l.close(nil)
	l.mu.Unlock()
	l.late.Wait()
	for _, stop := range l.stops {
		stop()
	}
}

// AdmitBy adds an Ask. If the service is already working, the Ask is called immediately, and a
// refusal stops the service.
func (l *Life) AdmitBy(ask Ask) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asks = append(l.asks, ask)
	if inside := l.inside; inside != nil && !l.left {
		l.late.Go(func() { l.ask(inside, ask) })
	}
}

func (l *Life) ask(ctx context.Context, ask Ask) {
	var stop func()
	err := guard.Call("function of AdmitBy", func() (err error) {
		stop, err = ask(ctx, l.refuse)
		return err
	})
	if err != nil {
		l.refuse(err)
		return
	}
	if stop == nil { // nothing to stop
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stops = append(l.stops, stop)
}

func (l *Life) refuse(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left || l.refusal != nil {
		return
	}
	l.refusal = err
	l.close(err)
}

// Refused returns the refusal, or nil if there is none.
func (l *Life) Refused() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refusal
}

// Enter enters a phase, unless the service is already in that phase or a later one.
func (l *Life) Enter(phase Phase) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if order[phase] > order[l.Phase()] {
		l.now.Store(&reached{phase, time.Now()})
	}
}

// Current returns the phase and when it was entered.
func (l *Life) Current() (Phase, time.Time) {
	if now := l.now.Load(); now != nil {
		return now.phase, now.at
	}
	return Created, l.CreatedAt
}

// Phase returns the phase. It takes no lock.
func (l *Life) Phase() Phase {
	phase, _ := l.Current()
	return phase
}

// Ready returns an error unless the service is running and was not refused.
func (l *Life) Ready() error {
	if err := l.Refused(); err != nil {
		return err
	}
	switch l.Phase() {
	case Running:
		return nil
	case Created:
		return fmt.Errorf("the %s not running yet", l.Is)
	case Stopped:
		return fmt.Errorf("the %s stopped", l.Is)
	default:
		return fmt.Errorf("the %s draining", l.Is)
	}
}

// Started returns an error until the service has begun to run and has called its server, and
// whenever the service was refused. server is the name of the server, such as "database".
func (l *Life) Started(server string, called bool) error {
	if err := l.Refused(); err != nil {
		return err
	}
	switch {
	case l.Phase() == Created:
		return fmt.Errorf("the %s not running yet", l.Is)
	case !called:
		return fmt.Errorf("the %s has not been called yet", server)
	}
	return nil
}
