package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// usage counts the jobs in progress and their total time.
type usage struct {
	mu    sync.Mutex
	busy  time.Duration // of all jobs until at
	at    time.Time
	now   int
	most  int
	began int // jobs
}

// change adds to the number of jobs in progress, and returns the total time so far.
func (u *usage) change(by int) (busy time.Duration, at time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	at = time.Now()
	u.busy += time.Duration(u.now) * at.Sub(u.at)
	u.now, u.at = u.now+by, at
	u.most = max(u.most, u.now)
	u.began += max(0, by)
	return u.busy, at
}

// slots measures the share of a fleet's slots in use while more jobs wait than there are slots.
// riverqueue/river#1145 reports the problem: four clients with ten workers each lost half of their
// throughput when they got a common limit of 40.
type slots struct {
	fleet
	use    *usage
	queued int
	limit  int
}

// A slotShape is a fleet's limit, its number of workers, and the concurrency of each.
type slotShape struct{ limit, workers, places int }

// The workers together have as many places as there are slots.
var slotsOfAll = slotShape{limit: 40, workers: 4, places: 10}

const (
	// Jobs sleep for a time between these.
	shortestJob = 100 * time.Millisecond
	longestJob  = 500 * time.Millisecond
	// slotWarmUp is how long a fleet works before the measurement.
	slotWarmUp = time.Second
)

// slotsOf is a case of such a fleet, measured for this long in all rounds together. All jobs are
// queued first, because queueing during the measurement takes time from the fleet.
func slotsOf(name string, s side, shape slotShape, long time.Duration) Case {
	return Case{Name: name, Open: func() (runner, error) {
		m := &slots{use: &usage{at: time.Now()}, limit: shape.limit}
		var err error
		m.fleet, err = s(shape.workers, shape.places, func(time.Time) {
			m.use.change(1)
			time.Sleep(shortestJob + rand.N(longestJob-shortestJob))
			m.use.change(-1)
		})
		if err != nil {
			return nil, err
		}
		m.queued = 2*m.limit + int(1.5*float64(m.limit)*(slotWarmUp+long).Seconds()/
			((shortestJob+longestJob)/2).Seconds())
		if err = m.queue(atOnceDue(m.queued)); err == nil {
			err = m.settle()
		}
		if err == nil {
			err = m.start()
		}
		if err != nil {
			return nil, errors.Join(err, m.close())
		}
		time.Sleep(slotWarmUp)
		return m, nil
	}}
}

func (s *slots) measure(window time.Duration) (sample, error) {
	s.use.mu.Lock()
	s.use.most = 0
	first := s.use.began
	s.use.mu.Unlock()
	before, began := s.use.change(0)
	time.Sleep(window)
	after, ended := s.use.change(0)
	s.use.mu.Lock()
	all, most := s.use.began, s.use.most
	s.use.mu.Unlock()
	switch {
	case s.queued-all < s.limit:
		return sample{}, fmt.Errorf("only %d jobs were left", s.queued-all)
	case most > s.limit:
		return sample{}, fmt.Errorf("%d jobs went on at once, and the limit is %d", most, s.limit)
	}
	elapsed := ended.Sub(began).Seconds()
	return sample{Value: 100 * (after - before).Seconds() / elapsed / float64(s.limit), Did: float64(all - first),
		Extra: map[string]float64{"jobs/s": float64(all-first) / elapsed, "most at once": float64(most)}}, nil
}
