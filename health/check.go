package health

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// Timeout is how long a probe waits for its checks: half of the default timeout of a Kubernetes
// probe.
const Timeout = 500 * time.Millisecond

// A check never runs more than once at a time. A check that hangs therefore costs one goroutine,
// however many probes arrive.
type check struct {
	name     string
	run      func() error
	required bool

	mu   sync.Mutex
	last *call
}

// A call is one call of a check. Probes that arrive while it is in progress share it.
type call struct {
	began  time.Time
	done   chan struct{}
	failed bool // failed and text may be read only after done is closed
	text   string
}

// A verdict is the result of a check.
type verdict struct {
	name     string
	required bool
	failed   bool
	text     string // the error, if failed
}

// run calls the checks concurrently and waits for them for at most Timeout.
func run(checks []*check) []verdict {
	calls := make([]*call, len(checks))
	for i, c := range checks {
		calls[i] = c.call()
	}
	verdicts := make([]verdict, len(checks))
	for i, c := range checks {
		failed, text := calls[i].wait()
		verdicts[i] = verdict{c.name, c.required, failed, text}
	}
	return verdicts
}

var well = func() *call {
	c := &call{done: make(chan struct{})}
	close(c.done)
	return c
}()

func (c *check) call() *call {
	if c.run == nil {
		return well
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last != nil && !c.last.over() {
		return c.last
	}
	c.last = &call{began: time.Now(), done: make(chan struct{})}
	go c.last.make(c.run)
	return c.last
}

// make calls the check and reads the text of its error. It calls Error in this goroutine, because
// Error is user code and may panic or hang.
func (c *call) make(run func() error) {
	c.failed, c.text = true, "the check ended its goroutine" // kept if run calls runtime.Goexit
	defer close(c.done)
	panicked := safely(func() error {
		if err := run(); err != nil {
			c.text = err.Error()
		} else {
			c.failed = false
		}
		return nil
	})
	if panicked != nil {
		c.text = panicked.Error()
	}
}

func (c *call) over() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func (c *call) wait() (failed bool, text string) {
	if left := Timeout - time.Since(c.began); left > 0 && !c.over() {
		late := time.NewTimer(left)
		defer late.Stop()
		select {
		case <-c.done:
		case <-late.C:
		}
	}
	if !c.over() {
		return true, fmt.Sprintf("the check has not answered for %v: it should read memory only",
			time.Since(c.began).Round(time.Millisecond))
	}
	return c.failed, c.text
}

// Debounce wraps f so that its result changes only slowly. The first call returns the result of f.
// After that, the result changes between success and failure only when every call of f during a
// period of d has returned the new result. Debounce starts no goroutine, so it does not notice
// changes between two probes.
func Debounce(d time.Duration, f func() error) func() error {
	var mu sync.Mutex
	var asked bool
	var said error        // the last error that was returned; nil is success
	var differs time.Time // since when f has disagreed with said; zero if it agrees
	return func() error {
		now := time.Now()
		err := safely(f) // called without the lock, because f may hang
		mu.Lock()
		defer mu.Unlock()
		switch {
		case !asked:
			asked, said = true, err
		case (err == nil) == (said == nil):
			said, differs = err, time.Time{}
		default:
			if differs.IsZero() {
				differs = now
			}
			if now.Sub(differs) >= d {
				said, differs = err, time.Time{}
			}
		}
		return said
	}
}

// safely turns a panic into an error.
func safely(f func() error) (err error) {
	if f == nil {
		return errors.New("there is no function: pass one to Debounce")
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the check panicked: %v", p)
		}
	}()
	return f()
}
