package main

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// In a burst, all workers acquire at the same moment, like timers that are due together. The value
// is the time (ms) until each has its answer. Releasing before the next burst does not count.
type burst struct{ *cycles }

func (b burst) measure(window time.Duration) (sample, error) {
	if err := b.warmUp(); err != nil {
		return sample{}, err
	}
	before, err := b.proof.count()
	if err != nil {
		return sample{}, err
	}
	var took []float64
	for began := time.Now(); time.Since(began) < window || len(took) == 0; {
		answered, granted, err := b.atOnce(b.workers)
		if err != nil {
			return sample{}, err
		}
		if granted != b.workers {
			return sample{}, fmt.Errorf("%d of %d were granted", granted, b.workers)
		}
		took = append(took, answered.Seconds()*1e3)
	}
	after, err := b.proof.count()
	if err != nil {
		return sample{}, err
	}
	attempts := len(took) * b.workers
	if grown, owed := after-before, (b.proof.attempt+b.proof.grant)*float64(attempts); owed <= 0 ||
		grown < proofNoise*owed {
		return sample{}, fmt.Errorf("it counted %d grants, but the server knows of %.0f instead of %.0f",
			attempts, grown, owed)
	}
	return sample{Value: median(took), Did: float64(attempts)}, nil
}

// atOnce lets workers acquire at the same moment, and returns the time until the last one has its
// answer. Then it releases all grants.
func (c *cycles) atOnce(workers int) (answered time.Duration, granted int, err error) {
	releases, errs := make([]func() error, workers), make([]error, workers)
	start := make(chan struct{})
	var ready, all sync.WaitGroup
	ready.Add(workers)
	for w := range workers {
		all.Go(func() {
			ready.Done()
			<-start
			if releases[w], errs[w] = c.take(w); errors.Is(errs[w], errBusy) {
				errs[w] = nil
			}
		})
	}
	ready.Wait()
	began := time.Now()
	close(start)
	all.Wait()
	answered = time.Since(began)
	for w, release := range releases {
		if release != nil && errs[w] == nil {
			granted++
			all.Go(func() { errs[w] = release() })
		}
	}
	all.Wait()
	return answered, granted, errors.Join(errs...)
}
