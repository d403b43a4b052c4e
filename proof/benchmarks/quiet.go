package main

import (
	"errors"
	"time"
)

// quiet counts a fleet's database calls per minute while there is nothing to do.
type quiet struct{ fleet }

// quietWarmUp is how long a fleet runs before the measurement, so that registration is over.
const quietWarmUp = 15 * time.Second

const (
	quietWorkers   = 10
	quietSchedules = 1000
)

// quietOf is a case with ten workers.
func quietOf(name string, s side) Case {
	return Case{Name: name, Open: func() (runner, error) {
		f, err := s(quietWorkers, startPlaces, func(time.Time) {})
		if err != nil {
			return nil, err
		}
		if err := f.start(); err != nil {
			return nil, errors.Join(err, f.close())
		}
		time.Sleep(quietWarmUp)
		return quiet{f}, nil
	}}
}

func (q quiet) measure(window time.Duration) (sample, error) {
	statements, trips, err := q.asked()
	if err != nil {
		return sample{}, err
	}
	began := time.Now()
	time.Sleep(window)
	statementsNow, tripsNow, err := q.asked()
	if err != nil {
		return sample{}, err
	}
	minutes := time.Since(began).Minutes()
	return sample{Value: float64(statementsNow-statements) / minutes, Did: float64(statementsNow - statements),
		Extra: map[string]float64{"round trips/min": float64(tripsNow-trips) / minutes}}, nil
}
