package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// errBusy is the refusal of a lock: an attempt with nothing to release.
var errBusy = errors.New("busy")

// A taker takes a lock for a worker, and returns a function that releases it.
type taker func(worker int) (release func() error, err error)

// A proof is a counter on the server. It shows that a case really did the work that it counts.
type proof struct {
	count   func() (float64, error)
	attempt float64 // least increase per attempt
	grant   float64 // least additional increase per grant and its release

	used func() (seconds float64, err error) // CPU time of the server, or nil
}

// cpu returns the CPU time of the server, in seconds, or 0.
func (p proof) cpu() (float64, error) {
	if p.used == nil {
		return 0, nil
	}
	return p.used()
}

// proofNoise is the least share of the counted operations that the proof must show. Asynchronous
// clients may still have calls in flight when a window ends.
const proofNoise = 0.9

// cycles makes workers take and release locks.
type cycles struct {
	workers int
	take    taker
	proof   proof
	value   func(took []time.Duration) float64 // of the sorted attempt times; nil: grants per second
	allHeld bool                               // others hold every slot, so each attempt must be refused
	warm    bool                               // each worker has made its first cycle
	stop    []func() error
}

func (c *cycles) close() error {
	var err error
	for _, stop := range slices.Backward(c.stop) {
		err = errors.Join(err, stop())
	}
	return err
}

func (c *cycles) measure(window time.Duration) (sample, error) {
	if err := c.warmUp(); err != nil {
		return sample{}, err
	}
	before, err := c.proof.count()
	if err != nil {
		return sample{}, err
	}
	server, err := c.proof.cpu()
	if err != nil {
		return sample{}, err
	}
	client := cpu()
	type tally struct {
		granted int
		took    []time.Duration
		err     error
	}
	tallies := make([]tally, c.workers)
	var all sync.WaitGroup
	began := time.Now()
	for w := range c.workers {
		all.Go(func() {
			t := &tallies[w]
			t.took = make([]time.Duration, 0, 1024)
			for t.err == nil && time.Since(began) < window {
				asked := time.Now()
				release, err := c.take(w)
				t.took = append(t.took, time.Since(asked))
				switch {
				case err == nil:
					t.granted++
					t.err = release()
				case !errors.Is(err, errBusy):
					t.err = err
				}
			}
		})
	}
	all.Wait()
	elapsed := time.Since(began).Seconds()
	clientNow := cpu()
	serverNow, err := c.proof.cpu()
	if err != nil {
		return sample{}, err
	}
	granted := 0
	var took []time.Duration
	for _, t := range tallies {
		if t.err != nil {
			return sample{}, t.err
		}
		granted += t.granted
		took = append(took, t.took...)
	}
	after, err := c.proof.count()
	if err != nil {
		return sample{}, err
	}
	attempts := len(took)
	owed := c.proof.attempt*float64(attempts) + c.proof.grant*float64(granted)
	switch grown := after - before; {
	case owed <= 0:
		return sample{}, errors.New("it has no proof of what it did")
	case grown < proofNoise*owed:
		return sample{}, fmt.Errorf("it counted %d attempts and %d grants, but the server knows of %.0f, not %.0f",
			attempts, granted, grown, owed)
	case c.allHeld && granted > 0:
		return sample{}, fmt.Errorf("%d were granted though every slot is held", granted)
	case !c.allHeld && granted == 0:
		return sample{}, fmt.Errorf("%d attempts, and nothing was granted", attempts)
	}
	slices.Sort(took)
	s := sample{Value: float64(granted) / elapsed, Did: float64(attempts), Extra: map[string]float64{
		"client CPU µs": (clientNow - client).Seconds() * 1e6 / float64(attempts),
		"p50 µs":        medianTime(took), "p99 µs": float64(took[attempts*99/100].Nanoseconds()) / 1e3,
		"granted %": 100 * float64(granted) / float64(attempts),
	}}
	if c.proof.used != nil {
		s.Extra["server CPU µs"] = (serverNow - server) * 1e6 / float64(attempts)
	}
	if c.value != nil {
		s.Value = c.value(took)
	}
	return s, nil
}

// medianTime returns the median of sorted times, in µs.
func medianTime(took []time.Duration) float64 {
	return float64(took[len(took)/2].Nanoseconds()) / 1e3
}

// meanTime returns the mean, in µs.
func meanTime(took []time.Duration) float64 {
	var sum time.Duration
	for _, t := range took {
		sum += t
	}
	return float64(sum.Nanoseconds()) / 1e3 / float64(len(took))
}

// warmUp makes each worker acquire and release once before the first round, so that connecting and
// preparing statements is not measured. One worker goes first.
func (c *cycles) warmUp() error {
	workers := c.workers
	if c.warm {
		workers = 1
	}
	c.warm = true
	errs := make([]error, workers)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() { errs[w] = c.once(w) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// once acquires and releases once.
func (c *cycles) once(worker int) error {
	release, err := c.take(worker)
	switch {
	case errors.Is(err, errBusy):
		return nil
	case err != nil:
		return err
	}
	return release()
}
