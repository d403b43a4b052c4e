//go:build linux

package main

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/httpsink"
	"github.com/tickslot/tickslot/proof/torture"
	"github.com/tickslot/tickslot/proof/torture/nemesis"
)

// statusEvery is how often a relay reports that it is awake.
const statusEvery = 100 * time.Millisecond

// runRelay runs a relay until it is told to drain.
func runRelay(spec Spec, log *torture.Log) error {
	d, err := nemesis.Open(spec.Ways[0])
	if err != nil {
		return err
	}
	defer d.Close()
	timing := Timing{spec.Lease}
	box := outboxOf(d)
	defer box.Close()
	s := &sink{log: log}
	for _, address := range spec.Receivers {
		s.receivers = append(s.receivers, httpsink.New("http://receiver/", httpsink.Options{Client: clientOf(address)}))
	}
	relay, err := outbox.NewRelay(box, outbox.RelayConfig{Name: spec.Name, Shards: spec.Shards, TTL: timing.TTL,
		MaxCrashes:    outbox.NoLimit, // the faults kill relays all the time
		Sinks:         map[string]outbox.Sink{plain: s, flaky: s, doomed: s, stuck: s},
		RetryInterval: timing.Retry(), BatchSize: 16, MaxDeliveries: 8, DeliverTimeout: timing.Deliver(),
		Retry:     outbox.Retry{MaxAttempts: maxAttempts, FirstWait: 50 * time.Millisecond, MaxWait: timing.TTL / 3},
		IdleDelay: timing.Idle(), PollInterval: timing.Poll(), CallTimeout: timing.Call(), SweepInterval: timing.TTL,
		DrainTimeout: time.Second, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	ctx, stop := nemesis.UntilTold()
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()
	for tick := time.NewTicker(statusEvery); ; {
		select {
		case <-tick.C:
			if ctx.Err() == nil {
				log.Write(torture.Line{Kind: torture.Status})
			}
		case err := <-ended:
			log.Write(torture.Line{Kind: torture.End})
			if _, stuck := errors.AsType[*outbox.StuckError](err); stuck ||
				err != nil && strings.Contains(err.Error(), "could not be written") {
				return nil // these messages are delivered again
			}
			return err
		}
	}
}

// clientOf returns a client for the receiver at a socket.
func clientOf(address string) *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", address)
		}}}
}

// A sink forwards messages to one of the receivers, and logs the result.
type sink struct {
	receivers []outbox.Sink
	log       *torture.Log
}

// Deliver implements outbox.Sink.
func (s *sink) Deliver(ctx context.Context, d outbox.Delivery) (err error) {
	m, err := parse(string(d.Payload))
	if err != nil {
		return err
	}
	m.Seq, m.Attempt = d.Seq, d.Attempt
	s.log.Write(torture.Line{Kind: torture.Started, Message: &m})
	said := m
	said.Outcome = torture.Failed
	defer func() { s.log.Write(torture.Line{Kind: torture.Returned, Message: &said}) }()
	if d.Topic == flaky {
		if err := s.fail(ctx); err != nil {
			return err
		}
	}
	if d.Topic == stuck {
		ctx = context.WithoutCancel(ctx)
	}
	err = s.receivers[rand.IntN(len(s.receivers))].Deliver(ctx, d)
	switch {
	case err == nil && d.Topic == flaky && rand.IntN(10) == 0:
		return errors.New("it was delivered, and nobody knows")
	case err == nil:
		said.Outcome = torture.Accepted
	case errors.Is(err, outbox.ErrPermanent):
		said.Outcome = torture.Refused
	}
	return err
}

// fail sometimes fails, in every possible way.
func (s *sink) fail(ctx context.Context) error {
	switch rand.IntN(40) {
	case 0:
		panic("as it was meant to")
	case 1:
		<-ctx.Done()
		return ctx.Err()
	case 2: // ignores the end of its context for a while
		<-ctx.Done()
		time.Sleep(rand.N(time.Second))
		return ctx.Err()
	case 3, 4, 5:
		return outbox.RetryAfter(rand.N(300*time.Millisecond), errors.New("it wants to wait"))
	case 6, 7, 8, 9:
		return errors.New("it fails")
	default:
		return nil
	}
}
