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

// A message that kills its relay leaves no result, and so no trace: the next relay would deliver
// it, too, and the one after it. But to write down each delivery before it begins would double what
// the database has to do. So it is done only when there is a reason. A relay whose predecessor died
// is wary: what it reads it writes down before it delivers it, in one call for all that begin
// together, until it has read all that was due. If it dies as well, what was under way is suspect:
// its row says so, whoever leads next. Suspects are delivered one at a time, so that a death after
// that is blamed on one message. A result clears its message, and those of others go on beside it.

// A message is one that was read.
type message struct {
	store.Pending
	wary bool // it is written down before its delivery begins
}

// A start is a delivery that is to begin.
type start struct {
	lane  *lane
	m     store.Pending
	topic string
}

// A crashedError is that of a message that is dead because so many relays have died with it.
type crashedError int

func (c crashedError) Error() string {
	return fmt.Sprintf("outbox: %d relays in a row died, or were cut off, while delivering it", int(c))
}

// killed reports whether a message is dead because of the relays that died with it.
func (r RelayConfig) killed(m store.Pending) bool {
	return r.MaxCrashes != NoLimit && m.Crashes >= r.MaxCrashes
}

// start delivers a message.
func (s *shard) start(d start) {
	s.relay.deliver(s.base, d.m, func(a attempt) { s.post(func() { s.delivered(d.lane, a) }) },
		func() { s.post(func() { s.returned(d.lane, d.topic) }) })
}

// begin delivers the messages that wait for it, once it is written down that it does.
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

// startAlone delivers a suspect, once no other is delivered by this relay.
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

// startNoted delivers a message, if it may.
func (s *shard) startNoted(d start, may bool, done func()) {
	if !may {
		done()
		s.release(d)
		return
	}
	s.relay.deliver(s.base, d.m, func(a attempt) {
		if a.abandoned {
			if s.term.Valid() {
				s.note([]start{d}, 0) // that this host stops is no crash
			}
			done()
		} else { // before the result is written, another death would be blamed on this one, too
			a.settled = done
			time.AfterFunc(2*s.relay.config.CallTimeout, done)
		}
		s.post(func() { s.delivered(d.lane, a) })
	}, func() { s.post(func() { s.returned(d.lane, d.topic) }) })
}

// noteAll writes down that messages are delivered, and reports whether they may be.
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

// note writes by how many more relays than before have died if this one dies now.
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

// release takes back a delivery that has not begun: the message is read again, not at once.
func (s *shard) release(d start) { s.post(func() { s.given(d) }) }

func (s *shard) given(d start) {
	s.retryAt = time.Now().Add(s.callWait/2 + rand.N(s.callWait))
	s.notNoted[d.m.ID] = d.m.Crashes
	s.delivered(d.lane, attempt{message: d.m, abandoned: true})
	s.returned(d.lane, d.topic)
}
