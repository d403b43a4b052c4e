package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tickslot/tickslot/outbox/internal/store"
)

// A message that kills its relay leaves no result and therefore no trace, so each following relay
// would deliver it and die, too. Recording every delivery before it begins would double the work of
// the database, so relays do that only when there is a reason. A relay whose predecessor died is
// wary. Until it has read all due messages, it records messages before it delivers them, with one
// call for all deliveries that begin together. If this relay dies as well, its deliveries in
// progress become suspect, and their rows say so to every later leader. Suspects are delivered one
// at a time, so that a further death is blamed on one message only. A result clears its message.
// Messages that are not suspect are delivered concurrently.

// A message is a message that was read.
type message struct {
	store.Pending
	wary bool // the delivery must be recorded before it begins
}

// A start is a delivery that is about to begin.
type start struct {
	lane  *lane
	m     store.Pending
	topic string
}

// A crashedError is the error of a dead message. It is the number of relays that have died while
// delivering the message.
type crashedError int

func (c crashedError) Error() string {
	return fmt.Sprintf("outbox: %d relays in a row died, or were cut off, while delivering it", int(c))
}

// killed reports whether a message is dead because too many relays died while delivering it.
func (r RelayConfig) killed(m store.Pending) bool {
	return r.MaxCrashes != NoLimit && m.Crashes >= r.MaxCrashes
}

// start delivers a message.
func (s *shard) start(d start) {
	s.relay.deliver(s.base, d.m, func(a attempt) { s.post(func() { s.delivered(d.lane, a) }) },
		func() { s.post(func() { s.returned(d.lane, d.topic) }) })
}

// begin records the deliveries in first and then starts them.
func (s *shard) begin() {
	if s.noting || len(s.first) == 0 {
		return
	}
	list := s.first
	s.first, s.noting = nil, true
	go func() {
		noted := s.noteAll(list)
		for _, d := range list {
			go s.startNoted(d, noted, func() {})
		}
		s.post(func() { s.noting = false })
	}()
}

// startAlone delivers a suspect once this relay delivers no other suspect.
func (s *shard) startAlone(d start) {
	select {
	case s.relay.alone <- struct{}{}:
	case <-s.stopped:
		s.release(d)
		return
	}
	s.relay.events.LogSome(slog.LevelWarn, "", "outbox: relays died while delivering a message: it is now "+
		"delivered alone", "message", ID(d.m.ID).String(), "topic", d.m.Topic, "relays", d.m.Crashes)
	s.startNoted(d, s.noteAll([]start{d}), sync.OnceFunc(func() { <-s.relay.alone }))
}

// startNoted delivers a recorded message if may is true. It calls done when the next suspect may
// begin.
func (s *shard) startNoted(d start, may bool, done func()) {
	if !may {
		done()
		s.release(d)
		return
	}
	s.relay.deliver(s.base, d.m, func(a attempt) {
		if a.abandoned {
			if s.term.Valid() {
				s.note([]start{d}, 0) // stopping this host is not a crash
			}
			done()
		} else { // until the result is written, another death would also be blamed on this message
			a.settled = done
			time.AfterFunc(2*s.relay.config.CallTimeout, done)
		}
		s.post(func() { s.delivered(d.lane, a) })
	}, func() { s.post(func() { s.returned(d.lane, d.topic) }) })
}

// noteAll records that messages are about to be delivered, and reports whether they may be
// delivered.
func (s *shard) noteAll(list []start) bool {
	if !s.note(list, 1) {
		return false
	}
	select {
	case <-s.stopped:
	default:
		if s.term.Valid() {
			return true
		}
	}
	if s.term.Valid() {
		s.note(list, 0)
	}
	return false
}

// note writes the number of crashes of each message, plus more. The caller passes 1 before
// deliveries begin, in case this relay dies, and 0 to take that back.
func (s *shard) note(list []start, more int) bool {
	begun := make([]store.Begun, len(list))
	for i, d := range list {
		begun[i] = store.Begun{ID: d.m.ID, Seq: d.m.Seq, Attempts: d.m.Attempts, Crashes: d.m.Crashes + more}
	}
	_, err := callFor(s.relay.calls.Life(), s, opBegin, func(ctx context.Context) (none struct{}, err error) {
		return none, s.relay.store.NoteBegun(ctx, begun)
	})
	return err == nil
}

// release gives back a delivery that has not begun. The message is read again after a pause.
func (s *shard) release(d start) { s.post(func() { s.given(d) }) }

func (s *shard) given(d start) {
	s.retryAt = time.Now().Add(s.callWait/2 + rand.N(s.callWait))
	s.notNoted[d.m.ID] = d.m.Crashes
	s.delivered(d.lane, attempt{message: d.m, abandoned: true})
	s.returned(d.lane, d.topic)
}
