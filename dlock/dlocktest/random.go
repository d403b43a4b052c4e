package dlocktest

import (
	"context"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

var randomly = []promise{
	{name: "random/operations", show: func(c *check) { random(c, false) }},
	{name: "random/operations with faults", show: func(c *check) { random(c, true) }},
}

// random finds faults that no other check looks for. It makes hosts' calls in random order and
// compares every answer with a model.
func random(c *check, faults bool) {
	seeds, operations := 1, 250
	if c.h.Virtual {
		seeds, operations = 30, 1000
		if testing.Short() {
			seeds = 5
		}
	}
	seed := c.h.Seed
	if seed != 0 {
		seeds = 1
	}
	for i := range seeds {
		if i > 0 {
			c.fresh()
		}
		if c.h.Seed == 0 {
			seed = mrand.Uint64()
		}
		newWalk(c, seed, faults).run(operations)
	}
}

// A walk is one sequence of random operations.
type walk struct {
	c      *check
	seed   uint64
	rand   *mrand.Rand
	hosts  []*Faulty
	faults bool
	model  *model
	log    journal
	start  time.Time
	tokens int
}

func newWalk(c *check, seed uint64, faults bool) *walk {
	w := &walk{c: c, seed: seed, rand: mrand.New(mrand.NewPCG(seed, 1)), faults: faults, model: newModel(c.h.Slack),
		start: time.Now()}
	for range 3 {
		w.hosts = append(w.hosts, NewFaulty(c.host().store))
	}
	return w
}

func (w *walk) run(operations int) {
	for i := range operations {
		if !w.c.h.Virtual && time.Since(w.start) > 5*w.c.h.TTL {
			break // enough time has passed
		}
		var wrong string
		switch n := w.rand.IntN(100); {
		case n < 40:
			wrong = w.acquire(w.model.attempt(w.newRequest()))
		case n < 52:
			wrong = w.again()
		case n < 68:
			wrong = w.extend()
		case n < 84:
			wrong = w.release()
		case n < 94 || !w.faults:
			w.wait()
		default:
			w.heal()
		}
		if wrong != "" {
			w.c.fatalf("operation %d: %s\n(to repeat it: Harness.Seed %d); the last ones were:%s", i, wrong, w.seed,
				w.log)
		}
		w.model.forget(time.Now())
	}
	w.heal()
}

func (w *walk) newRequest() driver.Request {
	w.tokens++
	req := driver.Request{
		Holder: driver.Holder{Host: "host", PID: w.tokens, ID: "x"},
		Token:  fmt.Sprintf("token-%d", w.tokens),
		TTL:    w.c.h.TTL,
	}
	switch w.rand.IntN(3) {
	case 0:
		req.Name = "x" // a mutex, independent of
	case 1:
		req.Name, req.Slots = "x", 2+w.rand.IntN(3) // a semaphore with hosts that disagree
	case 2:
		req.Name, req.Slots = "timer", 3
		if w.c.h.Features.AtomicTick {
			grid := w.c.h.TTL / 2
			at := time.Now().Truncate(grid).Add(-time.Duration(w.rand.IntN(2)) * grid)
			req.Tick = &driver.Tick{At: at, Max: 2}
		}
	}
	return req
}

// A way is how the next call is made: by which host and with which fault. The context ends soon if
// the call would hang.
type way struct {
	host    *Faulty
	what    string
	faulty  bool
	applied applied // the meaning of an error
	ctx     context.Context
	cancel  context.CancelFunc
}

// way picks a host at random, and perhaps a fault for its next call. If the call would hang, the
// context ends soon.
func (w *walk) way(op Op) way {
	n := w.rand.IntN(len(w.hosts))
	y := way{host: w.hosts[n], what: fmt.Sprintf("host %d", n)}
	ttl := w.c.h.TTL
	timeout := callTimeout
	if w.faults && w.rand.IntN(4) == 0 {
		y.faulty = true
		soon := ttl/20 + time.Duration(w.rand.Int64N(int64(ttl/10)))
		var fault Fault
		switch w.rand.IntN(6) {
		case 0:
			fault, y.applied = LostReply, maybeApplied
			y.what += ", lost reply"
		case 1:
			fault, y.applied, timeout = SilentReply, maybeApplied, soon
			y.what += ", silent reply"
		case 2:
			d := time.Duration(w.rand.Int64N(int64(2 * ttl)))
			fault, y.applied, timeout = Late(d), lateApplied, soon
			y.what += fmt.Sprintf(", late by %v", d)
		case 3:
			fault, timeout = Hang, soon
			y.what += ", hangs"
		case 4:
			fault = Error(errors.New("connection refused"))
			y.what += ", error"
		case 5:
			d := time.Duration(w.rand.Int64N(int64(ttl / 4)))
			fault, y.applied = Slow(d), maybeApplied
			y.what += fmt.Sprintf(", slow by %v", d)
		}
		y.host.InjectN(1, fault, op)
	}
	y.ctx, y.cancel = context.WithTimeout(context.Background(), timeout)
	return y
}

// unexpected describes an error without a fault.
func unexpected(err error) string { return fmt.Sprintf("an error out of nowhere: %v", err) }

func (w *walk) acquire(a *modelAttempt) string {
	y := w.way(OpAcquire)
	defer y.cancel()
	ans := attempt{req: a.req, sent: time.Now()}
	ans.grant, ans.err = y.host.TryAcquire(y.ctx, a.req)
	ans.got = time.Now()
	tick := ""
	if a.req.Tick != nil {
		tick = fmt.Sprintf(" tick %v", a.req.Tick.At.Sub(w.start))
	}
	outcome := fmt.Sprintf("slot %d fence %d", ans.grant.Slot, ans.grant.Fence)
	if ans.err != nil {
		outcome = ans.err.Error()
	}
	w.note(y.what, ans.sent, "acquire %s/%d%s by %s: %s", a.req.Name, a.req.Slots, tick, a.req.Token, outcome)
	if ans.err == nil {
		w.c.plausible(a.req, ans.grant)
	} else if reason(ans.err) == "" && !y.faulty {
		return unexpected(ans.err)
	}
	return w.model.acquired(a, y.applied, ans)
}

// again repeats a request whose token may hold a lease, or whose answer was lost. It does not
// repeat one whose lease has ended, because the result is then undefined.
func (w *walk) again() string {
	if alive := w.pick(1, func(a *modelAttempt) bool { return !a.givenUp && a.possible(time.Now()) }); len(alive) > 0 {
		return w.acquire(alive[0])
	}
	return ""
}

func (w *walk) extend() string {
	picked := w.pick(1+w.rand.IntN(4), func(a *modelAttempt) bool { return a.known })
	y := w.way(OpExtend)
	defer y.cancel()
	sent := time.Now()
	results, err := y.host.Extend(y.ctx, w.c.h.TTL, grantsOf(picked, nil)...)
	return w.judge("extend", y, picked, results, err, sent, w.model.extended)
}

func (w *walk) release() string {
	picked := w.pick(1+w.rand.IntN(3), func(*modelAttempt) bool { return true })
	y := w.way(OpRelease)
	defer y.cancel()
	sent := time.Now()
	results, err := y.host.Release(y.ctx, grantsOf(picked, w.rand)...)
	return w.judge("release", y, picked, results, err, sent, w.model.released)
}

func (w *walk) judge(op string, y way, picked []*modelAttempt, results []driver.Result, err error, sent time.Time,
	each func(*modelAttempt, applied, driver.Result, error, time.Time, time.Time) string,
) string {
	got := time.Now()
	var line string
	for i, a := range picked {
		line += " " + a.req.Token
		if i < len(results) {
			line += "=" + results[i].Outcome.String()
		}
	}
	w.note(y.what, sent, "%s%s: error %v", op, line, err)
	switch {
	case err != nil && !y.faulty:
		return unexpected(err)
	case err == nil && len(results) != len(picked):
		return fmt.Sprintf("%d results for %d grants", len(results), len(picked))
	}
	for i, a := range picked {
		var r driver.Result
		if err == nil {
			r = results[i]
		}
		if wrong := each(a, y.applied, r, err, sent, got); wrong != "" {
			return wrong
		}
	}
	return ""
}

// pick returns up to n different attempts.
func (w *walk) pick(n int, fits func(*modelAttempt) bool) []*modelAttempt {
	var picked []*modelAttempt
	for _, i := range w.rand.Perm(len(w.model.attempts)) {
		if a := w.model.attempts[i]; fits(a) && len(picked) < n {
			picked = append(picked, a)
		}
	}
	return picked
}

// grantsOf returns the grants with their slots as far as known. If r is set, some slots are left
// out at random.
func grantsOf(attempts []*modelAttempt, r *mrand.Rand) []driver.Grant {
	grants := make([]driver.Grant, len(attempts))
	for i, a := range attempts {
		grants[i] = a.grant
		if !a.known || r != nil && r.IntN(2) == 0 {
			grants[i] = byToken(a.req)
		}
	}
	return grants
}

func (w *walk) wait() {
	ttl := w.c.h.TTL
	d := time.Duration(w.rand.Int64N(int64(ttl / 4)))
	switch w.rand.IntN(8) {
	case 0:
		d = ttl + w.c.h.Slack
	case 1:
		d = ttl
	case 2:
		d = ttl - 1
	case 3:
		if w.c.h.Virtual {
			d = time.Duration(w.rand.Int64N(int64(time.Hour)))
		}
	}
	time.Sleep(d)
	w.log.add("%v wait %v", time.Since(w.start), d)
}

func (w *walk) heal() {
	for _, h := range w.hosts {
		h.Heal()
	}
	w.model.healed(time.Now())
	w.log.add("%v heal", time.Since(w.start))
}

func (w *walk) note(what string, sent time.Time, format string, args ...any) {
	w.log.add("%v–%v %s: %s", sent.Sub(w.start), time.Since(w.start), what, fmt.Sprintf(format, args...))
}
