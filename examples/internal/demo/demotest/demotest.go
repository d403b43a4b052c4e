// Package demotest checks the examples that run the demonstration.
package demotest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"testing"

	"github.com/tickslot/tickslot/examples/internal/demo"
)

// output is the JSON that users read. The names are repeated here because they must not change.
type output struct {
	Hosts   int     `json:"hosts"`
	Seconds float64 `json:"seconds"`
	Timers  []struct {
		Name             string `json:"name"`
		Limit            int    `json:"limit"`
		MaxRunning       int    `json:"max_running"`
		Runs             int    `json:"runs"`
		Ticks            int    `json:"ticks"`
		Skipped          int    `json:"skipped"`
		PerTick          int    `json:"per_tick"`
		MaxStartsPerTick int    `json:"max_starts_per_tick"`
	} `json:"timers"`
	SlotRecoveredMS int64 `json:"slot_recovered_ms"`
}

// Check runs the demonstration and checks its output: the limits were reached but not exceeded, and
// the slot of the disconnected host was taken over.
func Check(t *testing.T, run func(ctx context.Context, args []string, stdout, stderr io.Writer) int, hosts int,
	args ...string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), append([]string{"-json", "-for", "5s"}, args...), &stdout, &stderr); code != 0 ||
		stderr.Len() > 0 {
		t.Fatalf("exit status %d: %s", code, &stderr)
	}
	var out output
	dec := json.NewDecoder(&stdout)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&out); err != nil {
		t.Fatal(err)
	}
	if dec.More() {
		t.Error("there is more than one JSON object")
	}
	t.Logf("%+v", out)
	if out.Hosts != hosts || out.Seconds < 5 || len(out.Timers) != 2 {
		t.Errorf("got %d hosts, %v seconds, %d timers", out.Hosts, out.Seconds, len(out.Timers))
	}
	if ms := out.SlotRecoveredMS; ms <= 0 || ms > 2*demo.LeaseTTL.Milliseconds() {
		t.Errorf("the slot came back after %d ms, want more than 0 and at most %v", ms, 2*demo.LeaseTTL)
	}
	for i, want := range []struct {
		timer           string
		atOnce, perTick int
	}{{"resize-images", 3, 3}, {"send-digest", 1, 1}} {
		got := out.Timers[i]
		if got.Name != want.timer || got.Limit != want.atOnce || got.PerTick != want.perTick {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if got.MaxRunning != want.atOnce {
			t.Errorf("%s: at most %d at once, want the limit to be reached and kept: %d", got.Name, got.MaxRunning,
				want.atOnce)
		}
		if got.MaxStartsPerTick < 1 || got.MaxStartsPerTick > want.perTick {
			t.Errorf("%s: at most %d starts per tick, want 1 to %d", got.Name, got.MaxStartsPerTick, want.perTick)
		}
		if got.Ticks < 1 || got.Runs < got.Ticks || got.Skipped < 0 {
			t.Errorf("%s: %d runs of %d ticks, %d skipped", got.Name, got.Runs, got.Ticks, got.Skipped)
		}
	}
}
