package main

import (
	"errors"
	"fmt"
	"time"
)

// A burnDown measures how fast a fleet completes no-ops that wait when it starts, until the
// database records that all have succeeded, with the library's usual history. It is measured once.
type burnDown struct {
	fleet
	come *arrival
}

// longestBurnDown aborts a fleet that makes no progress.
const longestBurnDown = 5 * time.Minute

// burnsDown is a case with this many jobs.
func burnsDown(name string, s side, workers, places, jobs int) Case {
	return Case{Name: name, Open: func() (runner, error) {
		b := &burnDown{come: newArrival(jobs)}
		var err error
		if b.fleet, err = s(workers, places, b.come.come); err != nil {
			return nil, err
		}
		if err = b.queue(atOnceDue(jobs)); err == nil {
			err = b.settle()
		}
		if err != nil {
			return nil, errors.Join(err, b.close())
		}
		return b, nil
	}}
}

// measure starts when the first job has started, so that a library's start-up time does not count.
func (b *burnDown) measure(time.Duration) (sample, error) {
	server := func() time.Duration { return 0 } // not measured
	if d, ok := b.fleet.(interface{ serverCPU() time.Duration }); ok {
		server = d.serverCPU
	}
	used, usedThere, overdue := cpu(), server(), time.After(longestBurnDown)
	if err := b.start(); err != nil {
		return sample{}, err
	}
	select {
	case <-b.come.all:
	case <-overdue:
		return sample{}, fmt.Errorf("%d of %d jobs were started", b.come.n.Load(), b.come.want)
	}
	for {
		done, err := b.done()
		if err != nil {
			return sample{}, err
		}
		if done == int(b.come.want) {
			break
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-overdue:
			return sample{}, fmt.Errorf("the database has %d of %d jobs", done, b.come.want)
		}
	}
	jobs := float64(b.come.want)
	if n := b.come.n.Load(); n != b.come.want {
		return sample{}, fmt.Errorf("%d jobs were started, and there were %.0f", n, jobs)
	}
	s := sample{Value: jobs / time.Since(*b.come.first.Load()).Seconds(), Did: jobs,
		Extra: map[string]float64{"client CPU µs": (cpu() - used).Seconds() * 1e6 / jobs}}
	if there := server() - usedThere; there > 0 {
		s.Extra["server CPU µs"] = there.Seconds() * 1e6 / jobs
	}
	return s, nil
}
