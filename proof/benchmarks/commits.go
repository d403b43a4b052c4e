package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// commits measures how long after its commit a message is delivered, if messages are appended one
// by one. The value is the median in ms.
type commits struct {
	fleet
	had chan time.Time
}

// committed is a case with two workers.
func committed(name string, s side) Case {
	return Case{Name: name, Open: func() (runner, error) {
		m := &commits{had: make(chan time.Time, 1)}
		var err error
		if m.fleet, err = s(2, startPlaces, func(time.Time) { m.had <- time.Now() }); err != nil {
			return nil, err
		}
		if err = m.start(); err == nil {
			_, err = m.one()
		}
		if err == nil {
			time.Sleep(settled) // listeners have received their own notification
			_, err = m.one()
		}
		if err != nil {
			return nil, errors.Join(err, m.close())
		}
		return m, nil
	}}
}

// settled is how long a fleet has to open its connections.
const settled = 500 * time.Millisecond

// one appends a message, and returns the time from its commit to its delivery. It returns 0 if a
// polling relay delivers before the producer knows of the commit.
func (c *commits) one() (time.Duration, error) {
	if err := c.queue(atOnceDue(1)); err != nil {
		return 0, err
	}
	done := time.Now()
	select {
	case had := <-c.had:
		return max(0, had.Sub(done)), nil
	case <-time.After(longestLate):
		return 0, fmt.Errorf("a message was not delivered within %v", longestLate)
	}
}

func (c *commits) measure(window time.Duration) (sample, error) {
	var late []time.Duration
	for began := time.Now(); time.Since(began) < window; time.Sleep(rand.N(2 * between)) {
		one, err := c.one()
		if err != nil {
			return sample{}, err
		}
		late = append(late, one)
	}
	slices.Sort(late)
	ms := func(q float64) float64 { return late[int(q*float64(len(late)-1))].Seconds() * 1e3 }
	return sample{Value: ms(0.5), Did: float64(len(late)), Extra: map[string]float64{"p90 ms": ms(0.9),
		"p99 ms": ms(0.99), "max ms": ms(1), "messages": float64(len(late))}}, nil
}
