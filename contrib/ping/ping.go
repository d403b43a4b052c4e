// Package ping tells a monitor when timers start, succeed and fail, using the protocol of
// healthchecks.io. The monitor raises an alarm if a timer has not succeeded for too long, even if
// the whole fleet is down. It works with any monitor that accepts these requests.
//
//	pings, err := ping.New(map[string]string{"report": "https://hc-ping.com/…"}, ping.Options{})
//	timers, err := timer.New(timer.Config{Store: lock, Hooks: pings.TimerHooks(timer.Hooks{})}, list...)
//	err = timers.Run(ctx)
//	pings.Flush(timeout) // a context with a deadline
//
// # What is promised
//
// Only the host that runs a tick pings: first the start, then the success, or the failure with the
// handler's error (secrets masked, at most 10 kB). A skipped tick sends nothing. A run that was
// canceled, cut off by a shutdown, or lost its lease sends nothing at its end, because it may
// continue or be repeated elsewhere. If neither happens, the monitor's deadline passes.
//
// A monitor that hangs, returns nonsense or redirects delays no timer and no hook. It occupies one
// goroutine for each of its URLs. Redirects are not followed.
//
// # What is not promised
//
// A ping can be lost: each request is tried three times, and at most 16 pings wait for each URL. If
// a success is lost, the monitor raises an alarm although the run succeeded.
package ping

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/internal/mask"
	"github.com/tickslot/tickslot/timer"
)

const (
	maxError   = 10_000 // bytes of an error that are sent; every version of the monitor keeps them
	maxWaiting = 16     // pings per URL
	maxAnswer  = 4 << 10
	tries      = 3
)

// Options are the settings of a Pinger. The zero value is valid.
type Options struct {
	// Client sends the requests. It needs no timeout. Redirects are not followed, because they
	// could lead into this host's network. Default http.DefaultClient.
	Client *http.Client

	// Timeout bounds each request. A ping makes up to three, with waits of 1 s and 4 s between
	// them. 100 ms to 1 min. Default 10 s.
	Timeout time.Duration

	// Logger receives a line when the pings of a timer start to fail, and one when they succeed
	// again. Default slog.Default().
	Logger *slog.Logger
}

// A Pinger sends the pings of any number of Schedulers. Its methods may be called from any
// goroutine.
type Pinger struct {
	client  http.Client
	timeout time.Duration
	log     *slog.Logger
	checks  map[string]*check // by the name of the timer
	busy    sync.WaitGroup    // counts the sending goroutines
}

// A check is a URL and the pings waiting to be sent to it.
type check struct {
	timer string
	url   *url.URL

	mu      sync.Mutex
	waiting []ping
	sending bool // a goroutine is sending the pings in order
	failing bool // the last ping failed, and the failure was logged
}

type ping struct {
	signal string // "start", "fail", or "" for success
	run    string // a UUID, the same for all pings of a run
	text   string
}

// New returns a Pinger for the given URLs, keyed by the name of the timer. Each URL is the one that
// reports a success. Timers without a URL are not pinged. Two timers must not share a URL, because
// the success of one would hide the failure of the other. Errors do not quote URLs, because knowing
// a URL is enough to ping it.
func New(urls map[string]string, o Options) (*Pinger, error) {
	p := &Pinger{timeout: cmp.Or(o.Timeout, 10*time.Second), log: mask.Logger(cmp.Or(o.Logger, slog.Default())),
		checks: make(map[string]*check, len(urls))}
	p.client = *cmp.Or(o.Client, http.DefaultClient)
	p.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	var faults []error
	if p.timeout < 100*time.Millisecond || p.timeout > time.Minute {
		faults = append(faults, fmt.Errorf("ping: Options.Timeout is %v: use 100ms to 1m", p.timeout))
	}
	owner := make(map[string]string, len(urls))
	for _, name := range slices.Sorted(maps.Keys(urls)) {
		u, err := url.Parse(urls[name])
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.Fragment != "" {
			faults = append(faults, fmt.Errorf("ping: the URL of timer %q cannot be pinged: it needs a scheme "+
				"and a host, as in https://hc-ping.com/your-uuid", name))
			continue
		}
		u = u.JoinPath() // removes dots and doubled slashes
		u.Path, u.RawPath = trimmed(u.Path), trimmed(u.RawPath)
		if other, taken := owner[u.String()]; taken {
			faults = append(faults, fmt.Errorf("ping: timers %q and %q have the same URL, so that a success of one "+
				"would hide a failure of the other: give each its own", other, name))
		}
		owner[u.String()] = name
		p.checks[name] = &check{timer: name, url: u}
	}
	return p, errors.Join(faults...)
}

func trimmed(path string) string {
	for len(path) > 0 && path[len(path)-1] == '/' {
		path = path[:len(path)-1]
	}
	return path
}

// TimerHooks returns hooks that ping and then call the hooks in own, which may be the zero value.
func (p *Pinger) TimerHooks(own timer.Hooks) timer.Hooks {
	started, ended := own.RunStarted, own.RunEnded
	own.RunStarted = func(i timer.RunInfo) {
		p.Start(i.Timer, idOf(i))
		if started != nil {
			started(i)
		}
	}
	own.RunEnded = func(r timer.RunResult) {
		switch r.Outcome {
		case timer.OutcomeOK:
			p.Success(r.Timer, idOf(r.RunInfo))
		case timer.OutcomeFailed, timer.OutcomePanicked, timer.OutcomeTimedOut:
			p.Fail(r.Timer, idOf(r.RunInfo), cmp.Or(r.Err, errors.New(string(r.Outcome))))
		}
		if ended != nil {
			ended(r)
		}
	}
	return own
}

func idOf(i timer.RunInfo) string {
	return fmt.Sprintf("%s\x00%s\x00%d", i.ID, i.Holder, i.StartedAt.UnixNano())
}

// Start pings that a run has started, for work that is not a timer. name must have a URL in the map
// passed to New. run is a text that is the same for all pings of a run, and differs between runs.
func (p *Pinger) Start(name, run string) { p.add(name, run, "start", "") }

// Success pings that a run has succeeded: see Start.
func (p *Pinger) Success(name, run string) { p.add(name, run, "", "") }

// Fail pings that a run has failed, with its error: see Start.
func (p *Pinger) Fail(name, run string, err error) {
	p.add(name, run, "fail", guard.Text(err, maxError))
}

// Flush waits until all pings are sent or given up. If ctx ends first, it returns the cause of ctx.
// Call it after Run of the Scheduler has returned. Otherwise the process may end before the success
// of its last run is sent.
func (p *Pinger) Flush(ctx context.Context) error {
	sent := make(chan struct{})
	go func() {
		p.busy.Wait()
		close(sent)
	}()
	select {
	case <-sent:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// add queues a ping. It starts a sending goroutine unless one is running.
func (p *Pinger) add(name, run, signal, text string) {
	c := p.checks[name]
	if c == nil {
		return
	}
	sum := sha256.Sum256([]byte(name + "\x00" + run))
	id := sum[:16]
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80 // a UUID of version 8
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == maxWaiting {
		c.waiting = slices.Delete(c.waiting, 0, 1) // the oldest matters least
	}
	c.waiting = append(c.waiting, ping{signal: signal, text: text,
		run: fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])})
	if !c.sending {
		c.sending = true
		p.busy.Go(func() { p.send(c) })
	}
}

// send sends the pings of a check in order until none is left.
func (p *Pinger) send(c *check) {
	for {
		c.mu.Lock()
		if len(c.waiting) == 0 {
			c.sending = false
			c.mu.Unlock()
			return
		}
		next := c.waiting[0]
		c.waiting = slices.Delete(c.waiting, 0, 1)
		c.mu.Unlock()
		err := p.deliver(c, next)
		switch {
		case err != nil && !c.failing:
			p.log.Warn("ping: the monitor does not take the pings of a timer", "timer", c.timer, "host", c.url.Host,
				"error", err)
		case err == nil && c.failing:
			p.log.Info("ping: the monitor takes the pings of a timer again", "timer", c.timer, "host", c.url.Host)
		}
		c.failing = err != nil
	}
}

// deliver sends a ping and retries after errors that may be temporary.
func (p *Pinger) deliver(c *check, what ping) (err error) {
	for try := range tries {
		again := true // stays true if the transport panics or ends its goroutine
		err = <-guard.Go("transport", func() (err error) {
			again, err = p.request(c, what)
			return err
		})
		if err == nil || !again {
			return err
		}
		if try < tries-1 {
			time.Sleep(time.Duration(1+3*try) * time.Second)
		}
	}
	return err
}

// request sends a ping once. again reports whether another attempt may succeed.
func (p *Pinger) request(c *check, what ping) (again bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), p.timeout)
	defer cancel()
	u := *c.url
	if what.signal != "" {
		u = *u.JoinPath(what.signal)
	}
	query := u.Query()
	query.Set("rid", what.run)
	u.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader([]byte(what.text)))
	if err != nil {
		return false, errors.New("the URL cannot be requested")
	}
	request.Header.Set("Content-Type", "text/plain; charset=utf-8")
	request.Header.Set("User-Agent", "tickslot-ping")
	response, err := p.client.Do(request)
	if err != nil {
		if of, ok := guard.As[*url.Error](err); ok {
			err = of.Err // the error of package http contains the whole URL
		}
		return true, errors.New(guard.Text(err, maxAnswer))
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxAnswer)) // so that the connection can be reused
	switch code := response.StatusCode; {
	case code/100 == 2:
		return false, nil
	case code/100 == 3:
		return false, fmt.Errorf("it redirects (%d), and redirects are not followed: use the target URL", code)
	default:
		return code/100 == 5 || code == http.StatusTooManyRequests, fmt.Errorf("it answers %d", code)
	}
}
