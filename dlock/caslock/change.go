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

// widest is the maximum width of the bounds of the server's clock. It must stay below
// driver.MaxTickAhead. Otherwise a release recorded by one host could lie so far in another host's
// future that the other host would reject it.
const widest = driver.MaxTickAhead - time.Second

// change runs do on the states of some names and writes the changed states if no other host has
// written them meanwhile. After a conflict, it runs do again on the current states. Only the
// results of the last call of do count.
//
// If do changes nothing, change returns only if it has read the documents during this call. A
// cached document is not enough.
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

// read calls do with the current state of a name, read from the server.
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

// show calls do with the state in docs[0].
func (s *Store) show(ctx context.Context, docs []*version, do func(*leasestate.State, leasestate.Now)) error {
	now, err := s.now(ctx, docs)
	if err == nil {
		do(docs[0].state.Clone(), now)
	}
	return err
}

// decide calls do on copies of the states in docs and returns the documents to write.
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
		if bytes.Contains(body, []byte(`\ufffd`)) { // invalid UTF-8 reads back as other text
			if doc.state, err = leasestate.Parse(body); err != nil {
				return nil, unreadable(doc.Key, err)
			}
		}
		doc.Data = leasestate.Document(now.At, body)
		doc.body = doc.Data[len(doc.Data)-1-len(body) : len(doc.Data)-1]
		if most := s.backend.Limits().Bytes; len(doc.Data) > most {
			return nil, fmt.Errorf("caslock: %w: the document %q would take %d bytes, and %s stores at most %d "+
				"per document: lower its number of slots (about %d fit), shorten the text kept under it, or use "+
				"Redis or a database", driver.ErrFault, doc.Key, len(doc.Data), s, most, slotsIn(most))
		}
		changed = append(changed, doc)
	}
	return changed, nil
}

// decode decodes the states in documents that were read.
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

// remember caches documents that were read, except those that are already cached.
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

// now returns the server's time, and never a time before docs were written. Hosts know the clock to
// different precision, so without this rule a pause that one host has seen end could continue for
// another. A document from far in the future is ignored: it was written while the clock was ahead.
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
		return leasestate.Now{}, fmt.Errorf("caslock: the clock of %s is between %v and %v: it has to be known "+
			"to within %v", s, b.From, b.Until, widest)
	}
	at := b.From
	if written.After(at) && !written.After(b.Until.Add(driver.MaxTickAhead)) {
		at = written
	}
	at = at.Round(0) // without the monotonic reading, which is not stored
	return leasestate.Now{At: at, Late: max(0, b.Until.Sub(at))}, nil
}

// load reads the documents of keys.
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

// put writes documents and caches them.
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
		err = fmt.Errorf("the backend returned %d versions for %d documents", len(versions), len(docs))
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

// call calls the backend and measures how long that takes. It retries if the server throttles it.
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
		// The random part keeps throttled hosts from returning at the same instant.
		wait := max(throttled.Wait, s.known.roundTrip())
		wait += rand.N(wait/4 + 1)
		if until, bounded := ctx.Deadline(); bounded && time.Until(until) < wait {
			return err // the server's answer says more than an expired deadline
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

// ended returns the error of a call that changed nothing before its context ended.
func (s *Store) ended(keys []string, conflicts int, err error) error {
	if conflicts == 0 {
		return err
	}
	return fmt.Errorf("caslock: %q was changed by others %d times meanwhile: it has too many holders for this kind of "+
		"store: %w", keys[0], conflicts, err)
}

// pause waits for d. It returns the context's error if the context ends first.
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
