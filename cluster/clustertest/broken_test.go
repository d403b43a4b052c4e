package clustertest

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/dlock"
)

// broken is an in-memory store that alters its calls, to plant one bug in it.
type broken struct {
	cluster.Store
	before func(*cluster.Batch)
	read   func(*cluster.Rows)
	runs   func([]cluster.Run) []cluster.Run
	sweep  func(*cluster.Retention, *int)
	ctx    func(context.Context) context.Context
	known  bool
	writes atomic.Int64
}

func (s *broken) context(ctx context.Context) context.Context {
	if s.ctx != nil {
		return s.ctx(ctx)
	}
	return ctx
}

func (s *broken) Write(ctx context.Context, b cluster.Batch) (cluster.Written, error) {
	s.writes.Add(1)
	b.Leases = append([]cluster.LeaseRecord(nil), b.Leases...)
	b.Events, b.Runs = append([]cluster.Event(nil), b.Events...), append([]cluster.Run(nil), b.Runs...)
	b.Timers = append([]cluster.TimerRecord(nil), b.Timers...)
	b.Buckets = append([]cluster.Bucket(nil), b.Buckets...)
	if b.Host != nil {
		h := *b.Host
		b.Host = &h
	}
	if s.before != nil {
		s.before(&b)
	}
	w, err := s.Store.Write(s.context(ctx), b)
	w.HostUnknown = w.HostUnknown && !s.known
	return w, err
}

func (s *broken) Read(ctx context.Context, q cluster.Query) (cluster.Rows, error) {
	rows, err := s.Store.Read(s.context(ctx), q)
	if s.read != nil {
		s.read(&rows)
	}
	return rows, err
}

func (s *broken) Runs(ctx context.Context, timer string) ([]cluster.Run, error) {
	runs, err := s.Store.Runs(s.context(ctx), timer)
	if s.runs != nil {
		runs = s.runs(runs)
	}
	return runs, err
}

func (s *broken) Sweep(ctx context.Context, r cluster.Retention, limit int) (int, error) {
	if s.sweep != nil {
		s.sweep(&r, &limit)
	}
	return s.Store.Sweep(s.context(ctx), r, limit)
}

// For each promise, the suite detects a store that breaks it.
//
// Fails when a check is removed from the suite.
func TestBrokenStoresAreFound(t *testing.T) {
	t.Parallel()
	each := func(change func(*cluster.LeaseRecord)) func(*broken) {
		return func(s *broken) {
			s.before = func(b *cluster.Batch) {
				for i := range b.Leases {
					change(&b.Leases[i])
				}
			}
		}
	}
	for name, bug := range map[string]struct {
		promise string // that the bug breaks
		plant   func(*broken)
	}{
		"nothing":       {"", func(*broken) {}},
		"never unknown": {"hosts/a host without a row is unknown", func(s *broken) { s.known = true }},
		"detail forgotten": {"hosts/a heartbeat without its detail", func(s *broken) {
			s.before = func(b *cluster.Batch) {
				if b.Host != nil && b.Host.Detail == nil && s.writes.Load() > 1 {
					b.Host.Detail = json.RawMessage("{}")
				}
			}
		}},
		"timers without their outage": {"hosts/what their timers do", func(s *broken) {
			s.before = func(b *cluster.Batch) {
				if b.Host != nil {
					b.Host.Detail = bytes.ReplaceAll(b.Host.Detail, []byte(`,"max_per_host":2`), nil)
				}
			}
		}},
		"late heartbeats count": {"hosts/a host that left", func(s *broken) {
			s.before = func(b *cluster.Batch) {
				if b.Host != nil {
					b.Host.UpFor = time.Hour
				}
			}
		}},
		"a time of day": {"leases/a record is a row", each(func(l *cluster.LeaseRecord) { l.HeldFor += time.Second })},
		"fences ignored": {"leases/the grant with the higher fence",
			each(func(l *cluster.LeaseRecord) { l.Fence = 0 })},
		"fences as floating point": {"leases/the grant with the higher fence",
			each(func(l *cluster.LeaseRecord) { l.Fence = dlock.Fence(float64(l.Fence)) })},
		"grants mixed up": {"leases/the grants of one holder",
			each(func(l *cluster.LeaseRecord) { l.Grant = "" })},
		"live grants not seen": {"leases/a live grant without a fence",
			each(func(l *cluster.LeaseRecord) { l.ExpiresIn = min(l.ExpiresIn, 0) })},
		"every grant is live": {"leases/a grant that is over", each(func(l *cluster.LeaseRecord) {
			if l.Holder.Host == "a" {
				l.Released, l.ExpiresIn = false, time.Hour
			}
		})},
		"live before fences": {"leases/with fences a live grant",
			each(func(l *cluster.LeaseRecord) { l.Fence = 0 })},
		"slots mixed up": {"leases/each slot and the mutex", each(func(l *cluster.LeaseRecord) { l.Slot = 0 })},
		"mutex is slot 0": {"leases/each slot and the mutex",
			each(func(l *cluster.LeaseRecord) { l.Slots = max(1, l.Slots) })},
		"released again": {"leases/a grant that is released",
			each(func(l *cluster.LeaseRecord) { l.Released = false })},
		"oldest first": {"events/come newest first", func(s *broken) {
			s.read = func(rows *cluster.Rows) {
				for i, e := range rows.Events {
					rows.Events[len(rows.Events)-1-i], rows.Events[i] = e, rows.Events[len(rows.Events)-1-i]
				}
				if len(rows.Events) > 1 {
					rows.Events[0], rows.Events[1] = rows.Events[1], rows.Events[0]
				}
			}
		}},
		"written twice": {"histories/what is repeated", func(s *broken) {
			s.before = func(b *cluster.Batch) {
				for i := range b.Runs {
					b.Runs[i].ID += strings.Repeat("'", int(s.writes.Load()))
				}
			}
		}},
		"counted twice": {"records/a batch is counted once", func(s *broken) {
			s.before = func(b *cluster.Batch) { b.Number += 10 * s.writes.Load() }
		}},
		"never counted": {"records/of hosts", func(s *broken) {
			s.before = func(b *cluster.Batch) { b.Number = 0 }
		}},
		"one bin": {"records/buckets add up", func(s *broken) {
			s.before = func(b *cluster.Batch) {
				for i := range b.Buckets {
					b.Buckets[i].Bin = min(b.Buckets[i].Bin, 1)
				}
			}
		}},
		"last written, not last ended": {"records/are merged", func(s *broken) {
			s.before = func(b *cluster.Batch) {
				for i := range b.Timers {
					b.Timers[i].Last.EndedAgo = 0
				}
			}
		}},
		"stacks left out": {"runs/are as they were", func(s *broken) {
			s.before = func(b *cluster.Batch) {
				for i := range b.Runs {
					b.Runs[i].Stack = ""
				}
			}
		}},
		"one run too few": {"runs/at most RunsPerTimer", func(s *broken) {
			s.runs = func(runs []cluster.Run) []cluster.Run { return runs[:min(len(runs), cluster.RunsPerTimer-1)] }
		}},
		"swept too early": {"sweeping/leases go", func(s *broken) {
			s.sweep = func(r *cluster.Retention, _ *int) { r.Leases /= 4 }
		}},
		"hosts swept too late": {"sweeping/hosts go", func(s *broken) {
			s.sweep = func(r *cluster.Retention, _ *int) { r.Hosts = time.Hour }
		}},
		"no limit": {"sweeping/deletes at most", func(s *broken) {
			s.sweep = func(_ *cluster.Retention, limit *int) { *limit = 1000 }
		}},
		"cut text": {"texts/of any kind", func(s *broken) {
			s.before = func(b *cluster.Batch) {
				for i, e := range b.Events {
					b.Events[i].Text = e.Text[:min(len(e.Text), 199)]
				}
			}
		}},
		"lower case": {"texts/differ", each(func(l *cluster.LeaseRecord) { l.Name = strings.ToLower(l.Name) })},
		"short text": {"texts/that are long", func(s *broken) {
			s.before = func(b *cluster.Batch) {
				for i, e := range b.Events {
					b.Events[i].Text = e.Text[:min(len(e.Text), 1000)] // 1000 = 333 × 3 + 1
				}
			}
		}},
		"contexts ignored": {"calls/a context that has ended", func(s *broken) {
			s.ctx = func(context.Context) context.Context { return context.Background() }
		}},
		"late answers": {"calls/end with their context", func(s *broken) {
			s.ctx = func(ctx context.Context) context.Context {
				time.Sleep(10 * time.Second)
				return ctx
			}
		}},
		"two round trips": {"calls/take one round trip", func(*broken) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := map[string][]string{}
			for _, p := range promises {
				if !strings.HasPrefix(p.name, bug.promise) {
					continue
				}
				synctest.Test(t, func(t *testing.T) {
					c := Harness{Virtual: true, New: func(testing.TB) Registries {
						s := &broken{Store: cluster.NewMemoryStore()}
						bug.plant(s)
						r := Registries{Store: s, Other: cluster.NewMemoryStore()}
						switch name {
						case "late answers":
							r.Hang = func() func() { return func() {} }
						case "two round trips":
							trips := int64(0)
							r.RoundTrips = func() int64 { trips += 2; return trips }
						}
						return r
					}}.try(t, p)
					if len(c.broken) > 0 {
						found[p.name] = c.broken
					}
				})
			}
			if len(found) > 0 != (bug.promise != "") {
				t.Errorf("found: %v, want %q", found, bug.promise)
			}
		})
	}
}

// Fails when the suite accepts a harness whose Store and Other are the same registry.
func TestRegistriesThatAreOneAreFound(t *testing.T) {
	t.Parallel()
	for _, p := range promises {
		if p.name != "calls/do not reach the other registry" {
			continue
		}
		one := cluster.NewMemoryStore()
		for _, r := range []Registries{{}, {Store: one}, {Store: one, Other: one}} {
			h := Harness{New: func(testing.TB) Registries { return r }}
			if c := h.try(t, p); len(c.broken) == 0 {
				t.Errorf("%+v are not found to be no two registries", r)
			}
		}
		return
	}
	t.Error("there is no such promise any more")
}
