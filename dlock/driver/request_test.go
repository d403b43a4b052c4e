package driver_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

// CheckName allows any readable name, even with characters that a store has to escape. It refuses
// only names that could address another name's slots and names that cannot be displayed.
//
// Fails when a case of CheckName is removed.
func TestCheckName(t *testing.T) {
	for _, name := range []string{
		"x", "timer:process-orders", "a b", "{tag}", `"quoted'`, `back\slash`, "*?[a]", "émoji 🎉", "日本語", "a:slot",
		"slots:1", ":slot", "a: slot:1",
		"'; DROP TABLE leases; --", "%s%d", strings.Repeat("x", driver.MaxNameLen),
	} {
		if err := driver.CheckName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for name, want := range map[string]string{
		"":                                       "empty",
		strings.Repeat("x", driver.MaxNameLen+1): "257 bytes long: at most 256",
		strings.Repeat("é", driver.MaxNameLen/2) + "x": "257 bytes",
		"a\x00b":           "control character",
		"a\nb":             "control character",
		"a\u0085b":         "control character",
		"\xff":             "not valid UTF-8",
		"job:slot:1":       "separates",
		":slot:":           "separates",
		"slot:1":           "separates", // a prefix may end with a colon
		"a:slot:b:slot:1c": "separates",
	} {
		err := driver.CheckName(name)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", name, err, want)
		}
	}
}

// I11: Validate reports all faults of a request at once.
//
// Fails when Validate stops at the first fault or skips a field.
func TestRequestValidate(t *testing.T) {
	good := driver.Request{Name: "job", Token: "t-_Z9", TTL: time.Millisecond}
	tick := driver.Tick{At: time.Unix(1, 0), Max: 1}
	for name, change := range map[string]func(*driver.Request){
		"a mutex":      func(*driver.Request) {},
		"most slots":   func(r *driver.Request) { r.Slots = driver.MaxSlots },
		"with a tick":  func(r *driver.Request) { r.Tick = &tick },
		"longest name": func(r *driver.Request) { r.Name = strings.Repeat("x", driver.MaxNameLen) },
		"long token":   func(r *driver.Request) { r.Token = strings.Repeat("x", 64) },
	} {
		r := good
		change(&r)
		if err := r.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for want, change := range map[string]func(*driver.Request){
		"the name is empty":                 func(r *driver.Request) { r.Name = "" },
		"-1 slots":                          func(r *driver.Request) { r.Slots = -1 },
		"10001 slots":                       func(r *driver.Request) { r.Slots = driver.MaxSlots + 1 },
		"a token of 0 bytes":                func(r *driver.Request) { r.Token = "" },
		"a token of 65 bytes":               func(r *driver.Request) { r.Token = strings.Repeat("x", 65) },
		"a token with a character":          func(r *driver.Request) { r.Token = "a:b" },
		"a TTL of 999µs":                    func(r *driver.Request) { r.TTL = 999 * time.Microsecond },
		"a TTL of -1s":                      func(r *driver.Request) { r.TTL = -time.Second },
		"a tick at the zero time":           func(r *driver.Request) { r.Tick = &driver.Tick{Max: 1} },
		"a tick with Max -1: must be at le": func(r *driver.Request) { r.Tick = &driver.Tick{At: tick.At, Max: -1} },
	} {
		r := good
		change(&r)
		if err := r.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	err := driver.Request{Slots: -1, Tick: &driver.Tick{Max: -1}}.Validate()
	for _, want := range []string{"dlock: invalid request", "the name is empty", "-1 slots", "a token of 0",
		"a TTL of 0s", "zero time", "Max -1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

// Outcomes have a text for logs.
//
// Fails when two outcomes have the same text.
func TestOutcomeString(t *testing.T) {
	for o, want := range map[driver.GrantOutcome]string{driver.GrantOK: "ok", driver.GrantLost: "lost",
		driver.GrantUnknown: "unknown", 99: "unknown"} {
		if got := o.String(); got != want {
			t.Errorf("%d: %q, want %q", o, got, want)
		}
	}
}

// Causes have a text for errors and logs.
//
// Fails when the text of a cause without a name ends in mid-sentence.
func TestCauseString(t *testing.T) {
	for c, want := range map[driver.Cause]string{
		{By: "ann"}: "by ann", {By: "ann", Note: "ticket 7"}: "by ann: ticket 7",
		{}: "by somebody unknown", {Note: "ticket 7"}: "by somebody unknown: ticket 7"} {
		if got := c.String(); got != want {
			t.Errorf("%#v: %q, want %q", c, got, want)
		}
	}
	if got := (driver.Cause{By: "ann", Note: "ticket 7"}).Did("paused a"); got != "by ann: paused a: ticket 7" {
		t.Error(got)
	}
}
