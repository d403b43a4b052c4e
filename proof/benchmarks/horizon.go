package main

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// horizon is a steady load of no-ops, while an open transaction may keep vacuum from removing dead
// rows. The value is the number of no-ops completed per second.
type horizon struct {
	fleet
	held  bool
	late  histogram
	count atomic.Int64
}

const (
	offeredRate   = 800 // jobs per second, of all clients
	offeredEvery  = 50 * time.Millisecond
	offering      = 4 // clients
	horizonPlaces = 50
	// horizonParts is the number of parts of a window with separate figures.
	horizonParts = 6
)

// horizonOf is a case with four workers and four clients.
func horizonOf(name string, s side, held bool) Case {
	return Case{Name: name, Open: func() (runner, error) {
		m := &horizon{held: held}
		var err error
		m.fleet, err = s(offering, horizonPlaces, func(due time.Time) {
			m.late.add(time.Since(due))
			m.count.Add(1)
		})
		if err != nil {
			return nil, err
		}
		if err = m.start(); err == nil {
			err = m.queue(atOnceDue(offering))
		}
		if err != nil {
			return nil, errors.Join(err, m.close())
		}
		return m, nil
	}}
}

func (h *horizon) measure(window time.Duration) (s sample, err error) {
	if h.held {
		release, err := h.hold()
		if err != nil {
			return sample{}, err
		}
		defer func() { err = errors.Join(err, release()) }()
	}
	h.late.reset()
	first, began := h.count.Load(), time.Now()
	var all sync.WaitGroup
	errs := make([]error, offering)
	var queued atomic.Int64
	for c := range offering {
		all.Go(func() { errs[c] = h.offer(began, window, &queued) })
	}
	s.Extra = map[string]float64{}
	parts := horizonParts
	if window < time.Minute {
		parts = 1
	}
	last := first
	for part := range parts {
		until := window * time.Duration(part+1) / time.Duration(parts)
		time.Sleep(until - time.Since(began))
		n := h.count.Load()
		s.Extra[byTime(until)] = float64(n-last) / (window / time.Duration(parts)).Seconds()
		last = n
	}
	elapsed := time.Since(began).Seconds()
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return s, err
	}
	s.Did = float64(last - first)
	s.Value = s.Did / elapsed
	s.Extra["queued/s"] = float64(queued.Load()) / elapsed
	s.Extra["p50 ms"], s.Extra["p99 ms"] = h.late.quantile(0.5), h.late.quantile(0.99)
	dead, err := h.dead()
	s.Extra["dead rows"] = float64(dead)
	return s, err
}

// offer queues its share of the jobs, and catches up if it is late.
func (h *horizon) offer(began time.Time, window time.Duration, queued *atomic.Int64) error {
	const each = int(offeredRate * int64(offeredEvery) / int64(time.Second) / offering)
	for at := began; at.Sub(began) < window && time.Since(began) < window; at = at.Add(offeredEvery) {
		time.Sleep(time.Until(at))
		if err := h.queue(atOnceDue(each)); err != nil {
			return err
		}
		queued.Add(int64(each))
	}
	return nil
}

// byTime returns the key of the figures up to an instant.
func byTime(d time.Duration) string {
	return fmt.Sprintf("%s%d:%02d", byTimePrefix, int(d.Minutes()), int(d.Seconds())%60)
}

const byTimePrefix = "/s by "
