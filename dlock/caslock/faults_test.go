package caslock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/dlock/caslock"
	"github.com/tickslot/tickslot/dlock/caslock/caslocktest"
	"github.com/tickslot/tickslot/dlock/driver"
)

func request(name, token string, slots int) driver.Request {
	return driver.Request{Name: name, Slots: slots, Token: token, TTL: time.Minute,
		Holder: driver.Holder{Host: "host", PID: 1, ID: token}}
}

func mustGet(t *testing.T, s *caslock.Store, req driver.Request) driver.Grant {
	t.Helper()
	g, err := s.TryAcquire(t.Context(), req)
	if err != nil {
		t.Fatalf("%s for %s: %v", req.Name, req.Token, err)
	}
	return g
}

func mustBe(t *testing.T, s *caslock.Store, req driver.Request, reason driver.Reason) {
	t.Helper()
	_, err := s.TryAcquire(t.Context(), req)
	if no, ok := errors.AsType[*driver.NotAcquiredError](err); !ok || no.Reason != reason {
		t.Fatalf("%s for %s: %v: must be refused as %q", req.Name, req.Token, err, reason)
	}
}

// If this host was the last to write a document, a call takes one round trip. If it must read the
// document first, the call takes two. A refusal takes one, whatever is cached.
//
// Fails when a refusal is answered from memory, or a document that was just written is read again.
func TestRoundTrips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &caslocktest.Server{ClockInterval: time.Second, CallDelay: time.Millisecond}
		a, b := caslock.New(server.Client(0)), caslock.New(server.Client(0))
		costs := func(what string, want int, do func()) {
			t.Helper()
			before := server.Calls()
			do()
			if n := server.Calls() - before; n != want {
				t.Errorf("%s took %d round trips: must be %d", what, n, want)
			}
		}
		ok := func(results []driver.Result, err error) {
			t.Helper()
			if err != nil || results[0].Outcome != driver.GrantOK {
				t.Fatalf("%+v, %v", results, err)
			}
		}
		var g driver.Grant
		costs("the first acquire", 2, func() { g = mustGet(t, a, request("x", "1", 2)) })
		costs("an extend", 1, func() { ok(a.Extend(t.Context(), time.Minute, g)) })
		costs("a release", 1, func() { ok(a.Release(t.Context(), g)) })
		costs("an acquire of what is known", 1, func() { g = mustGet(t, a, request("x", "2", 1)) })
		costs("a refusal of what is known", 1, func() { mustBe(t, a, request("x", "3", 1), driver.ReasonFull) })
		costs("a refusal of what is not known", 1, func() { mustBe(t, b, request("x", "3", 1), driver.ReasonFull) })
		costs("two acquires after another host", 3, func() {
			// The first acquire reads, because b has not written. The second learns of the
			// conflict.
			mustGet(t, b, request("x", "4", 2))
			mustBe(t, a, request("x", "5", 2), driver.ReasonFull)
		})
		costs("an acquire after a refusal", 2, func() { mustGet(t, a, request("x", "6", 3)) })
	})
}

func fault(on caslocktest.Op, is caslocktest.FaultKind, length time.Duration) caslocktest.Fault {
	return caslocktest.Fault{On: on, Is: is, For: length}
}

// A fault in one call makes only this call fail. The next call finds the true state.
//
// Fails when the cache keeps a document whose write may have been lost.
func TestFaults(t *testing.T) {
	for _, f := range []struct {
		name  string
		fault caslocktest.Fault
		first string // the call's error; "" if it succeeds
	}{
		{"the reply is lost", fault(caslocktest.OpPut, caslocktest.FaultLoseReply, 0), "reset"},
		{"the write is late", fault(caslocktest.OpPut, caslocktest.FaultLate, time.Second), "reset"},
		{"somebody else is said to have written", fault(caslocktest.OpPut, caslocktest.FaultConflict, 0), ""},
		{"the server hangs", fault(caslocktest.OpPut, caslocktest.FaultHang, 0), "deadline"},
		{"a read hangs", fault(caslocktest.OpGet, caslocktest.FaultHang, 0), "deadline"},
		{"the user may not write", fault(caslocktest.OpPut, caslocktest.FaultRefuse, 0), "grant the right"},
		{"the server asks for a moment", fault(caslocktest.OpPut, caslocktest.FaultThrottle, 200*time.Millisecond), ""},
		{"the server asks for too long", fault(caslocktest.OpPut, caslocktest.FaultThrottle, time.Minute), "429"},
	} {
		t.Run(f.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &caslocktest.Server{CallDelay: time.Millisecond}
				a, b := caslock.New(server.Client(0)), caslock.New(server.Client(0))
				server.Plant(f.fault)
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				defer cancel()
				began := time.Now()
				_, err := a.TryAcquire(ctx, request("x", "first", 1))
				if took := time.Since(began); took > time.Second {
					t.Errorf("it took %v", took)
				}
				if errors.Is(err, driver.ErrNotAcquired) || (err == nil) != (f.first == "") ||
					err != nil && !strings.Contains(err.Error(), f.first) {
					t.Fatalf("%v: must say %q", err, f.first)
				}
				if refused := f.fault.Is == caslocktest.FaultRefuse; errors.Is(err, driver.ErrSetup) != refused {
					t.Errorf("%v: says that the store is not set up right: must be %t", err, refused)
				}
				// The same request returns the same grant, and no other request gets the slot.
				g := mustGet(t, a, request("x", "first", 1))
				mustBe(t, b, request("x", "second", 1), driver.ReasonFull)
				time.Sleep(2 * time.Second) // until the late write has arrived
				mustBe(t, b, request("x", "second", 1), driver.ReasonFull)
				if r, err := a.Release(t.Context(), g); err != nil || r[0].Outcome != driver.GrantOK {
					t.Fatalf("%+v, %v", r, err)
				}
				mustGet(t, b, request("x", "second", 1))
			})
		})
	}
}

// A write changes nothing if it arrives after its caller has given up and another host has taken
// the lock.
func TestLateWriteIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &caslocktest.Server{CallDelay: time.Millisecond}
		a, b := caslock.New(server.Client(0)), caslock.New(server.Client(0))
		g := mustGet(t, a, request("x", "a", 1))
		server.Plant(caslocktest.Fault{On: caslocktest.OpPut, Is: caslocktest.FaultLate, For: 5 * time.Second})
		if _, err := a.Release(t.Context(), g); err == nil {
			t.Fatal("a release whose write is late was answered")
		}
		if r, err := b.Release(t.Context(), g); err != nil || r[0].Outcome != driver.GrantOK {
			t.Fatalf("the release, asked again: %+v, %v", r, err)
		}
		mustGet(t, b, request("x", "b", 1))
		time.Sleep(10 * time.Second)
		mustBe(t, a, request("x", "c", 1), driver.ReasonFull)
	})
}

// A document that this host cannot read affects only its own name. The error says what to do, and
// the document is not overwritten.
//
// Fails when an unreadable document counts as an empty one.
func TestDocumentsThatCannotBeRead(t *testing.T) {
	for name, edit := range map[string]func(string) string{
		"truncated":          func(text string) string { return text[:len(text)/2] },
		"of another program": func(string) string { return `{"name": "x", "color": "blue"}` },
		"no JSON":            func(string) string { return "\x00\x01" },
		"of a newer format":  func(text string) string { return strings.Replace(text, `"tickslot":1`, `"tickslot":2`, 1) },
		"with a newer field": func(text string) string { return strings.Replace(text, `"fence"`, `"fance":1,"fence"`, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			server := new(caslocktest.Server)
			a, b := caslock.New(server.Client(0)), caslock.New(server.Client(0))
			g := mustGet(t, a, request("x", "a", 2))
			good := mustGet(t, a, request("y", "a", 2))
			server.Edit("semaphore:x", edit)
			for _, s := range []*caslock.Store{a, b} {
				_, err := s.TryAcquire(t.Context(), request("x", "b", 2))
				if !errors.Is(err, driver.ErrFault) || !strings.Contains(err.Error(), `"semaphore:x"`) {
					t.Errorf("%v: must name the document", err)
				}
			}
			results, err := a.Extend(t.Context(), time.Minute, g, good)
			if err != nil || results[0].Outcome != driver.GrantUnknown || !errors.Is(results[0].Err, driver.ErrFault) ||
				results[1].Outcome != driver.GrantOK {
				t.Errorf("%+v, %v: must cost the one lease", results, err)
			}
			states, err := a.Inspect(t.Context(), "x", "y")
			if err != nil || states[0].Err == nil || states[1].Err != nil {
				t.Errorf("%+v, %v: must cost the one name", states, err)
			}
		})
	}
}

// A missing table is reported as a setup error. Its leases are gone when it is created again.
func TestTableIsMissing(t *testing.T) {
	server := new(caslocktest.Server)
	a := caslock.New(server.Client(0))
	mustGet(t, a, request("x", "a", 1))
	server.Drop(true)
	if _, err := a.TryAcquire(t.Context(), request("x", "b", 1)); !errors.Is(err, driver.ErrSetup) {
		t.Errorf("%v: must say that the store is not set up", err)
	}
	server.Drop(false)
	mustGet(t, a, request("x", "b", 1))
}

// A change that exceeds the document size returns an error that says what to do, and the leases
// stay.
func TestTooLarge(t *testing.T) {
	server := &caslocktest.Server{Limits: caslock.Limits{Bytes: 4096, Together: 1}}
	a := caslock.New(server.Client(0))
	granted := 0
	for ; granted < 100; granted++ {
		req := request("x", fmt.Sprint("token-", granted), 500)
		if _, err := a.TryAcquire(t.Context(), req); err != nil {
			if !errors.Is(err, driver.ErrFault) || !strings.Contains(err.Error(), "lower its number of slots") {
				t.Errorf("%v: must say what to do", err)
			}
			break
		}
	}
	if list, err := a.List(t.Context(), "x", 500); err != nil || len(list) != granted || granted < 5 || granted > 30 {
		t.Errorf("%d of %d grants are listed, %v", len(list), granted, err)
	}
	err := a.Update(t.Context(), "x", driver.Update{Value: &driver.Value{Text: strings.Repeat("x", 4096)}})
	if !errors.Is(err, driver.ErrFault) {
		t.Errorf("a text of 4096 bytes: %v", err)
	}
}

// Sixteen hosts claim a tick at the same instant. The tick starts as often as it may, each host
// gets an answer in time, and the number of calls stays bounded.
func TestOneTickOfManyHosts(t *testing.T) {
	for _, most := range []int{1, 16} {
		synctest.Test(t, func(t *testing.T) {
			const hosts = 16
			server := &caslocktest.Server{CallDelay: 2 * time.Millisecond, ClockInterval: time.Second}
			var stores []*caslock.Store
			for range hosts {
				stores = append(stores, caslock.New(server.Client(0)))
			}
			for tick := range 20 {
				time.Sleep(time.Second)
				at := time.Now()
				before, starts := server.Calls(), make(chan driver.Grant, hosts)
				var wg sync.WaitGroup
				for i, s := range stores {
					wg.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), time.Second)
						defer cancel()
						req := request("x", fmt.Sprintf("%d-%d", tick, i), hosts)
						req.Tick = &driver.Tick{At: at, Max: most}
						g, err := s.TryAcquire(ctx, req)
						if err == nil {
							starts <- g
						} else if !errors.Is(err, driver.ErrNotAcquired) {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				close(starts)
				if len(starts) != most {
					t.Errorf("tick %d has %d starts: must be %d", tick, len(starts), most)
				}
				if calls := server.Calls() - before; calls > hosts*hosts {
					t.Errorf("tick %d took %d calls of %d hosts", tick, calls, hosts)
				}
				var grants []driver.Grant
				for g := range starts {
					grants = append(grants, g)
				}
				if _, err := stores[0].Release(t.Context(), grants...); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// panicking is a backend that panics for one name.
type panicking struct{ caslock.Backend }

func (p panicking) Get(ctx context.Context, key string) (caslock.Document, error) {
	if key == "semaphore:bad" {
		panic("a bug")
	}
	return p.Backend.Get(ctx, key)
}

// A panic in a backend affects only the name of the call.
//
// Fails when the panic ends the process.
func TestBackendThatPanics(t *testing.T) {
	s := caslock.New(panicking{new(caslocktest.Server).Client(0)})
	good := mustGet(t, s, request("good", "a", 1))
	bad := driver.Grant{Name: "bad", Slots: 1, Token: "a"}
	results, err := s.Extend(t.Context(), time.Minute, bad, good)
	if err != nil || results[0].Outcome != driver.GrantUnknown || results[0].Err == nil ||
		results[1].Outcome != driver.GrantOK {
		t.Errorf("%+v, %v", results, err)
	}
}
