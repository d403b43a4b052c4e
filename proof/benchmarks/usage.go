package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// usage counts the jobs that are being carried out, and for how long.
type usage struct {
	mu    sync.Mutex
	busy  time.Duration // of all jobs up to at
	at    time.Time
	now   int
	most  int
	began int // jobs
}

// change notes that so many jobs more go on, and returns how long all have taken.
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

// slots measures which share of a fleet's slots is in use while more jobs wait than there are
// slots. riverqueue/river#1145 reports the problem: the throughput of four clients with ten workers
// each fell to half when they got a limit of 40 for all.
type slots struct {
	fleet
	use    *usage
	queued int
	limit  int
}

// A slotShape is a limit over a fleet, and how many workers it has, each with room for so many
// jobs.
type slotShape struct{ limit, workers, places int }

// The workers have room for as many jobs as there are slots.
var slotsOfAll = slotShape{limit: 40, workers: 4, places: 10}

const (
	// A job sleeps for that long.
	shortestJob = 100 * time.Millisecond
	longestJob  = 500 * time.Millisecond
	// slotWarmUp is how long a fleet works before it is measured.
	slotWarmUp = time.Second
)

// slotsOf is a case of such a fleet, which is measured for so long in all rounds together. All jobs
// are queued before: whoever queues more while it is measured takes time from the fleet.
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
