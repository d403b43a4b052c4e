package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// listing counts the requested pages.
type listing struct {
	*memlock.Store
	leases int // additional leases that were never acquired

	mu    sync.Mutex
	pages int
	err   error
}

func (l *listing) Enumerate(ctx context.Context, after string, limit int) (driver.LeasePage, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pages++
	if l.err != nil {
		return driver.LeasePage{}, l.err
	}
	begin := 0
	_, _ = fmt.Sscan(after, &begin)
	var page driver.LeasePage
	for i := begin; i < min(begin+limit, l.leases); i++ {
		page.Leases = append(page.Leases, driver.LeaseInfo{Name: fmt.Sprint("timer:", i/5), Slot: i % 5,
			Holder: dlock.Holder{Host: fmt.Sprint("node-", i%200), PID: 1, ID: "x"}, Fence: dlock.Fence(i),
			ExpiresIn: time.Second})
	}
	if begin+limit < l.leases {
		page.Next = fmt.Sprint(begin + limit)
	}
	return page, ctx.Err()
}

// A snapshot of 200 hosts with 1,000 timers takes at most five calls, for any number of viewers,
// and further snapshots within SnapshotAge take none.
//
// Fails when each viewer reads, or when events and runs are read with separate calls.
func TestSnapshotIsSharedAndTakesFewCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var detail cluster.HostDetail
		for i := range 1_000 {
			detail.Timers = append(detail.Timers, cluster.TimerDetail{Name: fmt.Sprint(i), MaxConcurrency: 5})
		}
		text, err := json.Marshal(detail)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 200 {
			if _, err := f.store.Write(t.Context(), cluster.Batch{Host: &cluster.Heartbeat{TTL: time.Hour, Detail: text,
				Holder: dlock.Holder{Host: fmt.Sprint("node-", i), PID: 1, ID: "x"}}}); err != nil {
				t.Fatal(err)
			}
		}
		locks := &listing{leases: 50_000}
		h := f.make(cluster.Config{Locks: locks})
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				s, err := h.Snapshot(t.Context())
				if !strings.Contains(fmt.Sprint(err), "some are missing") || len(s.Hosts) != 200 ||
					len(s.Hosts[7].Timers) != 1_000 || len(s.Leases) != 40_000 || !s.MoreLeases ||
					s.Leases[0].HostState != cluster.HostAlive {
					t.Errorf("%d hosts, %d leases, %v", len(s.Hosts), len(s.Leases), err)
				}
			})
		}
		all.Wait()
		if calls := h.link.count(); calls["read"] != 1 || len(calls) != 1 || locks.pages != 4 {
			t.Errorf("%v, and %d pages", calls, locks.pages)
		}
		time.Sleep(cluster.DefaultSnapshotAge)
		_, _ = h.Snapshot(t.Context())
		if calls := h.link.count(); calls["read"] != 1 {
			t.Errorf("after SnapshotAge: %v", calls)
		}
	})
}

// If one of the two stores does not answer, the data of the other is current, and the snapshot says
// which part is old, and how old. A viewer who leaves does not affect the others.
//
// Fails when a failure empties the snapshot, or when one viewer's context ends the read for all.
func TestSnapshotWhenAStoreIsDown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		locks := &listing{leases: 3}
		h := f.start(cluster.Config{Locks: locks})
		time.Sleep(time.Minute)
		h.snapshot()
		locks.mu.Lock()
		locks.err = errDown
		locks.mu.Unlock()
		time.Sleep(time.Minute)
		h.RecordRun(cluster.Run{Timer: "a"})
		time.Sleep(time.Minute)
		s, err := h.Snapshot(t.Context())
		if !errors.Is(err, errDown) || !errors.Is(s.Err, errDown) || len(s.Leases) != 3 || len(s.Runs) != 1 ||
			s.ReadAge < 2*time.Minute || s.ReadAge > 3*time.Minute || !s.ReadAt.Equal(time.Now().Add(-s.ReadAge)) {
			t.Errorf("%+v, %v", s, err)
		}
		if strings.Contains(h.log.String(), "WARN") {
			t.Errorf("that is not the registry's failure: %s", h.log.String())
		}
		h.link.set(func(l *link) { l.hangs = 2 * time.Second })
		time.Sleep(time.Second)
		gone, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		var both sync.WaitGroup
		both.Go(func() {
			began := time.Now()
			if s, err := h.Snapshot(gone); !errors.Is(err, context.DeadlineExceeded) || s == nil ||
				time.Since(began) != time.Second {
				t.Errorf("%v after %v", err, time.Since(began))
			}
		})
		both.Go(func() {
			if s, _ := h.Snapshot(t.Context()); len(s.Hosts) != 1 || time.Since(s.Hosts[0].SeenAt) > ttl {
				t.Errorf("%+v", s.Hosts)
			}
		})
		both.Wait()
		h.link.heal()
		f.end()
	})
}

// A snapshot is JSON with stable keys, instants in UTC, no null lists, and errors as texts.
//
// Fails when a key is renamed.
func TestSnapshotAsJSON(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(cluster.Config{Environment: "test", AppVersion: "v1", TTL: time.Minute})
		h.Record(cluster.LeaseRecord{Name: "outbox:a", Slots: 3, Slot: 2, Fence: 7, ExpiresIn: time.Minute})
		h.RecordRun(cluster.Run{Timer: "a", Slot: 1, Took: 1500 * time.Millisecond, Outcome: "ok", Attempts: 1,
			Tick: time.Now().In(time.FixedZone("x", 3600))})
		time.Sleep(30 * time.Second)
		h.snapshot()
		time.Sleep(time.Second)
		h.link.set(func(l *link) { l.err = errDown })
		text, err := json.Marshal(h.snapshotAnyway())
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{`"self":{"holder":"host-0/1/x","host":"host-0","pid":1,"environment":"test",` +
			`"app_version":"v1","version":"`, `"up_for":31}`, `"read_at":"`, `"read_age":`, `"err":"cluster: read: `,
			`"hosts":[{"holder":"host-0/1/x","host":"host-0","pid":1,"own":true,"state":"alive"`, `"ttl":60,"timers":[],` +
				`"runners":[{"kind":"registry","name":"writer","state":"writing"`,
			`"leases":[{"name":"outbox:a","slot":2,"kind":"outbox","state":"held","holder":"host-0/1/x","own":true,` +
				`"host_state":"alive","fence":7,"acquired_at":"2000-01-01T00:00:00Z"`, `"events":[{"id":"`,
			`"kind":"host_joined"`, `"runs":[{"id":"`, `"timer":"a","holder":"host-0/1/x","tick":"2000-01-01T00:00:00Z",` +
				`"slot":1,"started_at":"`, `"took":1.5,"outcome":"ok","attempts":1}`} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s is not in it", want)
			}
		}
		if strings.Contains(string(text), "null") {
			t.Error("null")
		}
		if t.Failed() {
			t.Logf("%s", text)
		}
		h.link.heal()
		f.end()
	})
}

// snapshotAnyway returns the snapshot of a host, even if it is incomplete or outdated.
func (h *host) snapshotAnyway() *cluster.Snapshot {
	s, _ := h.Snapshot(h.t.Context())
	return s
}

// Names, texts and kinds with any content are returned unchanged or readable. Clocks that differ by
// 5 s change no state.
//
// Fails when a text reaches a store unchecked, or an instant of one host is compared with one of
// another.
func TestStrangeTexts(t *testing.T) {
	for name, text := range map[string]string{
		"quotes": `o'b"r` + "`;--", "four bytes": "𝄞🙂", "200 bytes": strings.Repeat("ab", 100),
		"controls": "a\x00b\x07\n", "not UTF-8": "a\xffb", "1,000 bytes": strings.Repeat("ü", 500),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := newFleet(t)
				reg := prometheus.NewRegistry()
				clean := strings.ToValidUTF8(strings.Map(func(r rune) rune {
					if r < ' ' {
						return ' '
					}
					return r
				}, text), "�")
				host := clean
				if len(host) > 255 {
					tooLong := dlock.Holder{Host: text}
					if _, err := cluster.New(cluster.Config{Store: f.store, Holder: tooLong}); err == nil {
						t.Error("it was taken")
					}
					host = "host"
				}
				h := f.start(cluster.Config{Holder: dlock.Holder{Host: host, PID: 1, ID: "x"}, Registerer: reg,
					Kind: func(string) string { return text }})
				h.Add(runner(func(show func(kind, name, state string, changedAt time.Time, err error)) {
					show(text, text, text, time.Now().Add(5*time.Second), errors.New(text))
				}))
				h.RecordRun(cluster.Run{Timer: text, Outcome: text, Err: text, By: text,
					Holder: dlock.Holder{Host: text, ID: text}})
				h.Record(cluster.LeaseRecord{Name: "a", Grant: text, ExpiresIn: time.Hour},
					cluster.LeaseRecord{Name: text, ExpiresIn: time.Hour})
				time.Sleep(time.Minute)
				s := h.snapshot()
				if len(s.Hosts) != 1 || s.Hosts[0].State != cluster.HostAlive || s.Hosts[0].Holder.Host != host {
					t.Errorf("%+v", s.Hosts)
				}
				if len(s.Runs) != 1 || !strings.HasPrefix(clean, s.Runs[0].Timer) || len(s.Runs[0].Timer) < 3 {
					t.Errorf("%+v", s.Runs)
				}
				if runs, err := h.Runs(t.Context(), text); err != nil || len(runs) != 1 {
					t.Errorf("%+v, %v", runs, err)
				}
				valid := 1
				if driver.CheckName(text) == nil {
					valid++
				}
				if len(s.Leases) != valid || !strings.HasPrefix(clean, s.Leases[0].Kind) || len(s.Leases[0].Kind) > 64 {
					t.Errorf("%+v", s.Leases)
				}
				if out, err := json.Marshal(s); err != nil || !json.Valid(out) {
					t.Error(err)
				}
				if n := value(t, reg, "tickslot_cluster_hosts", "state", "alive"); n != 1 {
					t.Errorf("%v hosts", n)
				}
				f.end()
			})
		})
	}
}

// Instants that cannot be encoded as JSON are left out, and nothing else is lost.
//
// Fails when one run or runner prevents the encoding of the snapshot, or when its host then shows
// no runners.
func TestInstantsThatCannotBeShown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		h := f.start(cluster.Config{})
		far := time.Date(12_000, 1, 1, 0, 0, 0, 0, time.UTC)
		h.Add(runner(func(show func(kind, name, state string, changedAt time.Time, err error)) {
			show("relay", "mail", "running", far, nil)
		}))
		h.RecordRun(cluster.Run{Timer: "a", Tick: far})
		_, err := f.store.Write(t.Context(), cluster.Batch{Runs: []cluster.Run{{ID: "b", Timer: "b", Tick: far}}})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		s := h.snapshot()
		if text, err := json.Marshal(s); err != nil || len(s.Runs) != 2 || len(s.Hosts[0].Runners) != 2 {
			t.Errorf("%v: %s", err, text)
		}
		f.end()
	})
}

// All leases are listed, even by a store with short pages, which result from examining many names
// without leases.
//
// Fails when a read ends after a few pages: a leader whose name sorts late is then not found.
func TestShortPagesAreAllRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		locks := &short{listing{leases: 60}}
		h := f.make(cluster.Config{Locks: locks})
		if s := h.snapshot(); len(s.Leases) != 60 || s.MoreLeases {
			t.Errorf("%d leases of 60, more: %v", len(s.Leases), s.MoreLeases)
		}
	})
}

// short returns pages of one lease.
type short struct{ listing }

func (s *short) Enumerate(ctx context.Context, after string, _ int) (driver.LeasePage, error) {
	return s.listing.Enumerate(ctx, after, 1)
}

// If the user of a store of locks may not list its leases, this is logged once. Its locks work, so
// nothing else would report it.
//
// Fails when only a reader of a Snapshot can find out why no lease is shown.
func TestLocksThatMayNotBeListedAreLogged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		locks := &listing{err: fmt.Errorf("%w: no right to ZRANGE", dlock.ErrSetup)}
		h := f.start(cluster.Config{Locks: locks})
		time.Sleep(10 * time.Minute)
		if n := strings.Count(h.log.String(), "no right to ZRANGE"); n != 1 {
			t.Errorf("%d lines: %s", n, h.log.String())
		}
		locks.mu.Lock()
		locks.err = nil
		locks.mu.Unlock()
		time.Sleep(10 * time.Minute)
		if !strings.Contains(h.log.String(), "works again") {
			t.Error(h.log.String())
		}
		f.end()
	})
}
