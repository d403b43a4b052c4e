package durableping_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tickslot/tickslot/contrib/ping"
	"github.com/tickslot/tickslot/contrib/ping/durableping"
	"github.com/tickslot/tickslot/durable"
)

// A run that succeeds at its second attempt sends two starts and a success. A run that becomes a
// dead letter sends a start and a failure with its error. A canceled run sends nothing at its end.
// The caller's hooks are called too.
//
// Fails when an attempt that is retried raises an alarm, or when the end of an attempt counts as
// the end of the run.
func TestRunsArePinged(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var got []string
	ids := map[string]bool{}
	monitor := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		got = append(got, r.URL.Path+" "+string(text))
		ids[r.URL.Query().Get("rid")] = true
	}))
	defer monitor.Close()
	pings, err := ping.New(map[string]string{"report": monitor.URL + "/7"}, ping.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var own []string
	hooks := durableping.Hooks(pings, durable.Hooks{
		RunStarted: func(durable.RunInfo) { own = append(own, "started") },
		RunEnded:   func(r durable.RunResult) { own = append(own, string(r.State)) },
	})
	info := func(id int64, attempt int) durable.RunInfo {
		return durable.RunInfo{ID: id, Handler: "report", Attempt: attempt, StartedAt: time.Unix(id, 0)}
	}
	end := func(i durable.RunInfo, state durable.State, err error) {
		hooks.RunEnded(durable.RunResult{RunInfo: i, State: state, Outcome: durable.OutcomeFailed, Err: err})
	}
	hooks.RunStarted(info(1, 1))
	hooks.RunStarted(info(1, 2))
	end(info(1, 2), durable.StateSucceeded, nil)
	hooks.RunStarted(info(2, 1))
	end(info(2, 1), durable.StateDead, errors.New("no paper"))
	end(info(3, 1), durable.StateDead, nil)
	end(info(4, 1), durable.StateCanceled, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := pings.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	want := []string{"/7/start ", "/7/start ", "/7 ", "/7/start ", "/7/fail no paper", "/7/fail error"}
	if !slices.Equal(got, want) || len(ids) != 4 {
		t.Errorf("%q with %d ids, want %q with 4", got, len(ids), want)
	}
	want = []string{"started", "started", "succeeded", "started", "dead", "dead", "canceled"}
	if !slices.Equal(own, want) {
		t.Errorf("%q, want %q", own, want)
	}
}
