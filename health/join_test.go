package health_test

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tickslot/tickslot/health"
)

// No joined source hides another, and two sources may have checks of the same name.
//
// Fails when the error does not name the source that failed, or when one check replaces another.
func TestJoinAsksAllSources(t *testing.T) {
	draining := func() error { return errors.New("it is draining") }
	timers := source{ready: draining, checks: checks{"database": bad}}
	worker := source{started: bad, ready: draining, checks: checks{"database": good}}
	h := health.New(health.Join(map[string]health.Source{"timers": timers, "runs": worker, "none": nil}))

	expect(t, get(h, "/livez"), 200, "ok", "ok\n")
	w := get(h, "/readyz?verbose")
	if w.Code != 503 {
		t.Errorf("it is ready: %s", w.Body)
	}
	for _, want := range []string{
		"[-]started failed: runs: it is bad",
		"runs: it is draining", "timers: it is draining",
		"[-]timers.database failed: it is bad", "[+]runs.database ok",
	} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("it does not contain %q:\n%s", want, w.Body)
		}
	}
	expect(t, get(h, "/readyz/timers.database"), 503, "unhealthy", "unhealthy\n[-]timers.database failed: it is bad\n")
}

// Join copies the map, so the caller may change it later. An empty map is valid.
func TestJoinOfNothing(t *testing.T) {
	sources := map[string]health.Source{}
	h := health.New(health.Join(sources))
	sources["late"] = source{live: bad}
	expect(t, get(h, "/livez"), 200, "ok", "ok\n")
	expect(t, get(h, "/readyz"), 200, "ok", "ok\n")
}

// A process with several parts joins their sources into one.
func ExampleJoin() {
	timers := source{}
	outbox := source{checks: checks{"few-dead-messages": func() error {
		return errors.New("3 messages have no attempts left")
	}}}
	probes := health.New(health.Join(map[string]health.Source{"timers": timers, "outbox": outbox}))
	w := httptest.NewRecorder()
	probes.ServeHTTP(w, httptest.NewRequest("GET", "/readyz?verbose", nil))
	fmt.Print(w.Body)
	// Output:
	// ok
	// [+]live ok
	// [+]started ok
	// [+]ready ok
	// [-]outbox.few-dead-messages failed: 3 messages have no attempts left
}
