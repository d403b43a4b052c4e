package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// starts measures how long after it is due a job's handler starts. The value is the 99th percentile
// in ms.
type starts struct {
	fleet
	how  occurrence
	late chan time.Duration
	warm bool // each connection has been used
}

// An occurrence says how the jobs are created.
type occurrence struct {
	ticks bool          // by schedules that are due each second
	ahead time.Duration // how long before its due time each job is queued; 0: one by one, when they are due
}

const (
	// between is the average time between two jobs.
	between = 25 * time.Millisecond
	// longestLate aborts a fleet that loses jobs.
	longestLate = 30 * time.Second
	// tickWarmUp is how long schedules run before the measurement.
	tickWarmUp = time.Second
	// startPlaces is the concurrency of a worker where it is not measured.
	startPlaces = 16
)

// startsOf is a case with two workers.
func startsOf(name string, s side, how occurrence) Case {
	return Case{Name: name, Open: func() (runner, error) {
		m := &starts{how: how, late: make(chan time.Duration, batches)}
		var err error
		if m.fleet, err = s(2, startPlaces, func(due time.Time) { m.late <- time.Since(due) }); err != nil {
			return nil, err
		}
		if err := m.start(); err != nil {
			return nil, errors.Join(err, m.close())
		}
		return m, nil
	}}
}

func (s *starts) measure(window time.Duration) (sample, error) {
	if !s.warm {
		s.warm = true
		if s.how.ticks {
			select {
			case <-s.late:
			case <-time.After(longestLate):
			}
			time.Sleep(tickWarmUp)
		} else if _, err := s.collect(atOnceDue(1)); err != nil {
			return sample{}, err
		}
	}
	late, err := s.measured(window)
	if err == nil && len(late) == 0 {
		err = errors.New("no job was started")
	}
	if err != nil {
		return sample{}, err
	}
	slices.Sort(late)
	ms := func(q float64) float64 { return late[int(q*float64(len(late)-1))].Seconds() * 1e3 }
	return sample{Value: ms(0.99), Did: float64(len(late)), Extra: map[string]float64{"p50 ms": ms(0.5),
		"p90 ms": ms(0.9), "p99 ms": ms(0.99), "max ms": ms(1), "jobs": float64(len(late))}}, nil
}

// measured returns the start delays of the jobs in a window.
func (s *starts) measured(window time.Duration) (late []time.Duration, err error) {
	began := time.Now()
	switch {
	case s.how.ticks:
		for len(s.late) > 0 { // from before the window
			<-s.late
		}
		for over := time.After(window); ; {
			select {
			case d := <-s.late:
				late = append(late, d)
			case <-over:
				return late, nil
			}
		}
	case s.how.ahead > 0:
		return s.collect(within(began.Add(s.how.ahead), window))
	}
	for time.Since(began) < window && err == nil {
		var one []time.Duration
		one, err = s.collect(atOnceDue(1))
		late = append(late, one...)
		time.Sleep(rand.N(2 * between))
	}
	return late, err
}

// within returns random instants within a window.
func within(from time.Time, window time.Duration) []time.Time {
	due := make([]time.Time, max(1, int(window/between)))
	for i := range due {
		due[i] = from.Add(rand.N(window))
	}
	return due
}

// collect queues jobs, and returns their start delays.
func (s *starts) collect(due []time.Time) (late []time.Duration, err error) {
	if err := s.queue(due); err != nil {
		return nil, err
	}
	last := slices.MaxFunc(due, time.Time.Compare)
	overdue := time.After(time.Until(last) + longestLate)
	for range due {
		select {
		case d := <-s.late:
			late = append(late, d)
		case <-overdue:
			return nil, fmt.Errorf("%d of %d jobs were started", len(late), len(due))
		}
	}
	return late, nil
}
