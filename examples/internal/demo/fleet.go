package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// A fleet is all hosts, by name.
type fleet struct {
	hosts map[string]*host
	rec   *recorder
}

func newFleet(size int, store *Store, rec *recorder, log *slog.Logger) (*fleet, error) {
	f := &fleet{hosts: make(map[string]*host, size), rec: rec}
	for i := range size {
		name := fmt.Sprintf("host-%d", i+1)
		h, err := newHost(name, store, rec, log)
		if err != nil {
			return nil, errors.Join(err, f.close())
		}
		f.hosts[name] = h
	}
	return f, nil
}

// run runs all hosts until ctx ends and all of them have drained.
func (f *fleet) run(ctx context.Context) error {
	errs := make(chan error, len(f.hosts))
	var running sync.WaitGroup
	for _, h := range f.hosts {
		running.Go(func() { errs <- h.timers.Run(ctx) })
	}
	running.Wait()
	close(errs)
	err := f.close()
	for e := range errs {
		err = errors.Join(err, e)
	}
	return err
}

func (f *fleet) close() error {
	var errs []error
	for _, h := range f.hosts {
		errs = append(errs, h.close())
	}
	return errors.Join(errs...)
}

// A cutOff is a slot whose host was cut off.
type cutOff struct {
	timer     string
	slot      int
	host      string
	recovered time.Duration // until another host ran in that slot; 0: none did
}

// cutOneOff waits for a run to begin, cuts its host off, and waits for a run of another host in the
// same slot.
func (f *fleet) cutOneOff(ctx context.Context) (cutOff, error) {
	victim, err := f.rec.await(ctx, 2*LeaseTTL, func(s start) bool { return s.timer == resizeImages })
	if err != nil {
		return cutOff{}, fmt.Errorf("no run of %s began: %w", resizeImages, err)
	}
	f.hosts[victim.host].wire.cut()
	at := time.Now()
	f.rec.cutOff(victim.host)

	cut := cutOff{timer: victim.timer, slot: victim.slot, host: victim.host}
	heir, err := f.rec.await(ctx, 2*LeaseTTL, func(s start) bool {
		return s.timer == cut.timer && s.slot == cut.slot && s.host != cut.host
	})
	if err != nil {
		return cut, fmt.Errorf("slot %d of %s did not come back: %w", cut.slot, cut.timer, err)
	}
	cut.recovered = heir.at.Sub(at)
	f.rec.say("%s has slot %d of %s, %.1fs after %s was cut off", heir.host, cut.slot, cut.timer,
		cut.recovered.Seconds(), cut.host)
	return cut, nil
}
