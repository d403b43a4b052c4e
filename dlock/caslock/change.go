package caslock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/leasestate"
)

// widest is how wide the bounds of the server's clock may be. It has to stay below
// driver.MaxTickAhead, or a release that one host noted would lie so far in the future of another
// that this one would not believe it.
const widest = driver.MaxTickAhead - time.Second

// change does a step on the states of some names, and writes those that it changed, if nobody else
// has written them meanwhile; else it does the step again on what is there now. What do has noted
// in its last call counts.
//
// A step that changes nothing says so of documents that were read during this call, never of those
// that were known before.
func (s *Store) change(ctx context.Context, keys []string, do func([]*leasestate.State, leasestate.Now)) error {
	leave := s.known.enter(ctx, keys[0])
	defer leave()
	docs, fresh := s.known.get(keys), false
	for conflicts := 0; ; {
		if err := ctx.Err(); err != nil {
			return s.ended(keys, conflicts, err)
		}
		var err error
		if docs == nil {
			if docs, err = s.load(ctx, keys); err != nil {
				return err
			}
			s.remember(docs)
			fresh = true
		}
		changed, err := s.decide(ctx, docs, do)
		switch {
		case err != nil:
			s.known.forget(keys)
			return err
		case len(changed) == 0 && fresh:
			return nil
		case len(changed) == 0:
			docs = nil
			continue
		}
		switch err = s.put(ctx, changed); {
		case err == nil:
			s.known.settled(keys[0])
			return nil
		case !isConflict(err):
			return err
		}
		conflicts++
		conflict, _ := errors.AsType[*ConflictError](err)
		if docs = nil; len(conflict.Current) == len(keys) && len(changed) == len(keys) {
			if docs, err = s.decode(conflict.Current); err != nil {
				return err
			}
			s.remember(docs)
			fresh = true
		}
		if err := pause(ctx, s.known.backOff(keys[0], conflicts)); err != nil {
			return s.ended(keys, conflicts, err)
		}
	}
}

// read calls do with the state of a name as it is on the server.
func (s *Store) read(ctx context.Context, key string, do func(*leasestate.State, leasestate.Now)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	docs, err := s.load(ctx, []string{key})
	if err != nil {
		return err
	}
	return s.show(ctx, docs, do)
}

// show calls do with the state in a document.
func (s *Store) show(ctx context.Context, docs []*version, do func(*leasestate.State, leasestate.Now)) error {
	now, err := s.now(ctx, docs)
	if err == nil {
		do(docs[0].state.Clone(), now)
	}
	return err
}

// decide does a step on the states in some documents, and returns what has to be written.
func (s *Store) decide(ctx context.Context, docs []*version,
	do func([]*leasestate.State, leasestate.Now)) (changed []*version, err error) {
	now, err := s.now(ctx, docs)
	if err != nil {
		return nil, err
	}
	states := make([]*leasestate.State, len(docs))
	for i, doc := range docs {
		states[i] = doc.state.Clone()
	}
	do(states, now)
	for i, old := range docs {
		body, err := states[i].Body()
		if err != nil {
			return nil, fmt.Errorf("caslock: %q: %w", old.Key, err)
		}
		if bytes.Equal(body, old.body) {
			continue
		}
		doc := &version{Document: old.Document, written: now.At, state: states[i]}
		if bytes.Contains(body, []byte(`\ufffd`)) { // text that is not UTF-8 is read as something else
			if doc.state, err = leasestate.Parse(body); err != nil {
				return nil, unreadable(doc.Key, err)
			}
		}
		doc.Data = leasestate.Document(now.At, body)
		doc.body = doc.Data[len(doc.Data)-1-len(body) : len(doc.Data)-1]
		if most := s.backend.Limits().Bytes; len(doc.Data) > most {
			return nil, fmt.Errorf("caslock: %w: what is known of %q would take %d bytes, and %s keeps at most %d "+
				"of a name: lower its number of slots (it bears about %d), shorten the text kept under it, or use "+
				"Redis or a database", driver.ErrFault, doc.Key, len(doc.Data), s, most, slotsIn(most))
		}
		changed = append(changed, doc)
	}
	return changed, nil
}

// decode returns what documents say that were read.
func (s *Store) decode(docs []Document) ([]*version, error) {
	versions := make([]*version, len(docs))
	for i, doc := range docs {
		if versions[i] = s.known.same(doc); versions[i] != nil {
			continue
		}
		v := &version{Document: doc}
		var err error
		if v.written, v.body, err = leasestate.ParseDocument(doc.Data); err == nil {
			v.state, err = leasestate.Parse(v.body)
		}
		if err != nil {
			return nil, unreadable(doc.Key, err)
		}
		versions[i] = v
	}
	return versions, nil
}

// remember keeps documents that were read, unless it has them.
func (s *Store) remember(docs []*version) {
	for _, doc := range docs {
		if doc.Version != "" && s.known.same(doc.Document) == nil {
			s.known.put(doc, false)
		}
	}
}

func unreadable(key string, err error) error {
	if errors.Is(err, leasestate.ErrFormat) {
		return fmt.Errorf("caslock: %w: the document %q: %w: update this host", driver.ErrFault, key, err)
	}
	return fmt.Errorf("caslock: %w: the document %q: %w: use another table or prefix, or delete it when no lease of "+
		"this name can be held any more", driver.ErrFault, key, err)
}

// now returns the time by the server's clock. It is not before documents were written: what hosts
// know of the clock differs, and a pause that one of them has ended would go on for another. A
// document from far in the future was written while the clock was ahead.
func (s *Store) now(ctx context.Context, docs []*version) (leasestate.Now, error) {
	var written time.Time
	for _, doc := range docs {
		if doc.written.After(written) {
			written = doc.written
		}
	}
	b, err := s.backend.Clock(ctx)
	if err != nil {
		return leasestate.Now{}, fmt.Errorf("caslock: the clock of %s: %w", s, err)
	}
	if width := b.Until.Sub(b.From); width < 0 || width > widest {
		return leasestate.Now{}, fmt.Errorf("caslock: the clock of %s shows between %v and %v: it has to be known "+
			"to %v", s, b.From, b.Until, widest)
	}
	at := b.From
	if written.After(at) && !written.After(b.Until.Add(driver.MaxTickAhead)) {
		at = written
	}
	at = at.Round(0) // as it is written
	return leasestate.Now{At: at, Late: max(0, b.Until.Sub(at))}, nil
}

// load reads documents.
func (s *Store) load(ctx context.Context, keys []string) ([]*version, error) {
	docs := make([]Document, len(keys))
	for i, err := range inParallel(len(keys), func(i int) error {
		return s.call(ctx, func() (err error) {
			docs[i], err = s.backend.Get(ctx, keys[i])
			docs[i].Key = keys[i]
			return err
		})
	}) {
		if err != nil {
			return nil, fmt.Errorf("caslock: %q: %w", keys[i], err)
		}
	}
	return s.decode(docs)
}

// put writes documents, and remembers them.
func (s *Store) put(ctx context.Context, changed []*version) error {
	docs := make([]Document, len(changed))
	for i, doc := range changed {
		docs[i] = doc.Document
	}
	var versions []string
	err := s.call(ctx, func() (err error) {
		versions, err = s.backend.Put(ctx, docs...)
		return err
	})
	if err == nil && len(versions) != len(docs) {
		err = fmt.Errorf("%d versions of %d documents that were written", len(versions), len(docs))
	}
	if err != nil {
		for _, doc := range docs {
			s.known.forget([]string{doc.Key})
		}
		return fmt.Errorf("caslock: %q: %w", docs[0].Key, err)
	}
	for i, doc := range changed {
		doc.Version = versions[i]
		s.known.put(doc, true)
	}
	return nil
}

// call calls the backend, measures how long that takes, and comes again if it is asked to.
func (s *Store) call(ctx context.Context, f func() error) error {
	for {
		began := time.Now()
		err := f()
		if err == nil || isConflict(err) {
			s.known.took(time.Since(began))
			return err
		}
		throttled, ok := errors.AsType[*ThrottledError](err)
		if !ok {
			return err
		}
		// Not all of those that were told the same come back at the same instant.
		wait := max(throttled.Wait, s.known.roundTrip())
		wait += rand.N(wait/4 + 1)
		if until, bounded := ctx.Deadline(); bounded && time.Until(until) < wait {
			return err // the answer that there is says more than a deadline
		}
		if pause(ctx, wait) != nil {
			return err
		}
	}
}

func isConflict(err error) bool {
	_, ok := errors.AsType[*ConflictError](err)
	return ok
}

// ended is the error of a call whose context has ended, and that has changed nothing.
func (s *Store) ended(keys []string, conflicts int, err error) error {
	if conflicts == 0 {
		return err
	}
	return fmt.Errorf("caslock: %q was changed by others %d times meanwhile: it has too many holders for this kind of "+
		"store: %w", keys[0], conflicts, err)
}

// pause waits, and returns the error of the context if that ends first.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
