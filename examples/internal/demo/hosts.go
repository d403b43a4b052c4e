package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// hosts are all hosts of a demonstration.
type hosts struct {
	byName map[string]*host
	rec    *recorder
}

func newHosts(size int, store *Store, rec *recorder, log *slog.Logger) (*hosts, error) {
	all := &hosts{byName: make(map[string]*host, size), rec: rec}
	for i := range size {
		name := fmt.Sprintf("host-%d", i+1)
		h, err := newHost(name, store, rec, log)
		if err != nil {
			return nil, errors.Join(err, all.close())
		}
		all.byName[name] = h
	}
	return all, nil
}

// run runs all hosts until ctx ends and all of them have drained.
func (h *hosts) run(ctx context.Context) error {
	errs := make(chan error, len(h.byName))
	var running sync.WaitGroup
	for _, host := range h.byName {
		running.Go(func() { errs <- host.timers.Run(ctx) })
	}
	running.Wait()
	close(errs)
	err := h.close()
	for e := range errs {
		err = errors.Join(err, e)
	}
	return err
}

func (h *hosts) close() error {
	var errs []error
	for _, host := range h.byName {
		errs = append(errs, host.close())
	}
	return errors.Join(errs...)
}

// A cutOff is a slot whose host was cut off.
type cutOff struct {
	timer     string
	slot      int
	host      string
	recovered time.Duration // from the cut until another host ran in that slot; 0 if none did
}

// cutOneOff waits for a run to start, cuts off its host, and waits for another host's run in the
// same slot.
func (h *hosts) cutOneOff(ctx context.Context) (cutOff, error) {
	lost, err := h.rec.await(ctx, 2*LeaseTTL, func(s start) bool { return s.timer == resizeImages })
	if err != nil {
		return cutOff{}, fmt.Errorf("no run of %s began: %w", resizeImages, err)
	}
	h.byName[lost.host].wire.cut()
	at := time.Now()
	h.rec.cutOff(lost.host)

	cut := cutOff{timer: lost.timer, slot: lost.slot, host: lost.host}
	next, err := h.rec.await(ctx, 2*LeaseTTL, func(s start) bool {
		return s.timer == cut.timer && s.slot == cut.slot && s.host != cut.host
	})
	if err != nil {
		return cut, fmt.Errorf("slot %d of %s did not come back: %w", cut.slot, cut.timer, err)
	}
	cut.recovered = next.at.Sub(at)
	h.rec.say("%s has slot %d of %s, %.1fs after %s was cut off", next.host, cut.slot, cut.timer,
		cut.recovered.Seconds(), cut.host)
	return cut, nil
}
