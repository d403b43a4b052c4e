package leasestate_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/leasestate"
)

// A state that is written and parsed again has the same body and gives the same answers.
//
// Fails when a field is not written.
func TestDocumentKeepsAll(t *testing.T) {
	now := leasestate.Now{At: time.Unix(1_900_000_000, 123_456_789), Late: 20 * time.Millisecond}
	by := driver.Cause{By: "ann", Note: `<"why">`}
	var own, limit leasestate.State
	for i := range 3 {
		req := driver.Request{Name: "x", Slots: 5, Token: fmt.Sprint("token-", i), TTL: time.Minute,
			Holder: driver.Holder{Host: "h", PID: i, ID: "id"}, Tick: &driver.Tick{At: now.At, Max: 9, Schedule: -7},
			Shared: []driver.SemaphoreSpec{{Name: "limit", Slots: 9, Rate: 5, Per: time.Hour}}}
		if _, err := leasestate.Acquire(req, now, &own, &limit); err != nil {
			t.Fatal(err)
		}
	}
	own.Release(driver.Grant{Token: "token-1", Slot: 1, Succeeded: true}, now)
	for _, u := range []driver.Update{
		{Pause: &driver.Pause{Cause: by, For: time.Hour}, Trigger: &by, Value: &driver.Value{Text: `a"b`}},
		{Resume: &by},
		{Pause: &driver.Pause{Cause: by, For: time.Hour}, Limit: &driver.LimitOverride{Cause: by, Slots: 0}},
	} {
		if err := own.Update(u, now); err != nil {
			t.Fatal(err)
		}
	}
	held := own.Held(leasestate.Key{Name: "x"}, now)
	if err := own.Revoke(0, held[0].Fence, by, now); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*leasestate.State{"own": &own, "limit": &limit} {
		body, err := s.Body()
		if err != nil {
			t.Fatal(err)
		}
		at, read, err := leasestate.ParseDocument(leasestate.Document(now.At, body))
		if err != nil || !at.Equal(now.At) || !bytes.Equal(read, body) {
			t.Fatalf("%s: %v, written at %v:\n%s\n%s", name, err, at, body, read)
		}
		copied, err := leasestate.Parse(read)
		if err != nil {
			t.Fatal(err)
		}
		again, err := copied.Body()
		if err != nil || !bytes.Equal(again, body) {
			t.Errorf("%s: %v:\n%s\n%s", name, err, body, again)
		}
		k := leasestate.Key{Name: "x"}
		if a, b := fmt.Sprint(s.Listed(nil, k, now)), fmt.Sprint(copied.Listed(nil, k, now)); a != b {
			t.Errorf("%s lists\n%s\n%s", name, a, b)
		}
		a, b := s.Control("x", now), copied.Control("x", now)
		if a.Version != b.Version || fmt.Sprint(a.Pause, a.Limit, a.Trigger, a.LastTick) !=
			fmt.Sprint(b.Pause, b.Limit, b.Trigger, b.LastTick) {
			t.Errorf("%s is controlled by\n%+v\n%+v", name, a, b)
		}
	}
}

// A server may reformat JSON. The error tells foreign documents from those in a newer format.
func TestDocumentOfOthers(t *testing.T) {
	at, body, err := leasestate.ParseDocument([]byte(`{ "at": 7000, "state": {"fence": 3}, "tickslot": 1 }`))
	if err != nil || at.UnixNano() != 7000 || string(body) != `{"fence": 3}` {
		t.Errorf("%v, %s, %v", at, body, err)
	}
	for text, want := range map[string]error{
		`{"name":"x"}`:                        leasestate.ErrForeign,
		`[]`:                                  leasestate.ErrForeign,
		`{"tickslot":1,"at":1,"state":{"fen`:  leasestate.ErrForeign,
		`{"tickslot":2,"at":1,"stats":{}}`:    leasestate.ErrFormat,
		`{"tickslot":"1","at":1,"state":{}}`:  leasestate.ErrForeign,
		`{"tickslot":-1,"at":1,"state":"{}"}`: leasestate.ErrForeign,
	} {
		if _, _, err := leasestate.ParseDocument([]byte(text)); !errors.Is(err, want) {
			t.Errorf("%s: %v: must be %v", text, err, want)
		}
	}
	for _, text := range []string{``, `{"fence":1}{}`, `{"fence":1,"newer":2}`, `{"rated":"1"}`, `{"slots":{}}`} {
		if _, err := leasestate.Parse([]byte(text)); !errors.Is(err, leasestate.ErrForeign) {
			t.Errorf("the body %s: %v", text, err)
		}
	}
}

// If the clock is known only to a second, a lease may end up to a second late, and no slot is taken
// early.
//
// Fails when a new lease counts from the earliest time that the clock may show, or when a lease is
// judged to have ended by the latest.
func TestLeasesEndLateNotEarly(t *testing.T) {
	var s leasestate.State
	began := time.Unix(1_900_000_000, 0)
	req := driver.Request{Name: "x", Slots: 1, Token: "a", TTL: time.Minute}
	if _, err := leasestate.Acquire(req, leasestate.Now{At: began, Late: time.Second}, &s); err != nil {
		t.Fatal(err)
	}
	other := req
	other.Token = "b"
	for _, at := range []struct {
		now     leasestate.Now
		granted bool
	}{
		{leasestate.Now{At: began.Add(time.Minute)}, false},
		{leasestate.Now{At: began.Add(time.Minute), Late: 3 * time.Second}, false},
		{leasestate.Now{At: began.Add(time.Minute + time.Second)}, true},
	} {
		if _, err := leasestate.Acquire(other, at.now, &s); (err == nil) != at.granted {
			t.Errorf("%v after the grant: %v", at.now.At.Sub(began), err)
		}
	}
}
