//go:build linux

package main

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/sqltest"
	"github.com/tickslot/tickslot/proof/torture"
	"github.com/tickslot/tickslot/proof/torture/nemesis"
	"github.com/tickslot/tickslot/proof/torture/owners"
)

// The processes of a torture run this test binary.
func TestMain(m *testing.M) {
	if text := os.Getenv(nemesis.SpecEnv); text != "" {
		if err := runRole(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// tortured runs a short torture, and fails the test if a promise is broken or nothing was done.
func tortured(t *testing.T, kind string, length time.Duration) {
	t.Helper()
	r := run(t.Context(), kind, t.TempDir(), uint64(time.Now().UnixNano()), length,
		Timing{1500 * time.Millisecond})
	t.Logf("%+v", r)
	if len(r.Broken) > 0 || r.Runs == 0 || r.Ticks == 0 || r.Faults == 0 {
		t.Errorf("%s: %v; %d runs, %d ticks, %d faults; %q", kind, r.Broken, r.Runs, r.Ticks, r.Faults, r.Examples)
	}
}

// Three processes on one file are killed and paused for some seconds. This and the next two tests
// do not run in parallel, because two databases at once keep workers from reclaiming in time.
//
// Fails when package durable loses or repeats a run, or the torture does not end.
func TestTortureOfAFile(t *testing.T) {
	testkit.SkipShort(t)
	tortured(t, "sqlite", 5*time.Second)
}

func TestTortureOfPostgres(t *testing.T) {
	testkit.Long(t)
	sqltest.RequirePostgres(t)
	tortured(t, "postgres", 20*time.Second)
}

func TestTortureBehindPgBouncer(t *testing.T) {
	testkit.Long(t)
	sqltest.RequirePostgres(t)
	sqltest.RequirePgBouncer(t)
	tortured(t, "pgbouncer", 20*time.Second)
}

// Fails when a plan depends on more than its seed, or four minutes of it omit a fault.
func TestPlan(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"postgres", "pgbouncer", "sqlite"} {
		one := plan(kind, 1, 4*time.Minute, 3*time.Second)
		if again := plan(kind, 1, 4*time.Minute, 3*time.Second); !reflect.DeepEqual(one, again) {
			t.Errorf("%s: two plans from one seed", kind)
		}
		if other := plan(kind, 2, 4*time.Minute, 3*time.Second); reflect.DeepEqual(one, other) {
			t.Errorf("%s: one plan from two seeds", kind)
		}
		got := map[string]bool{}
		for _, f := range one {
			got[f.Kind] = true
		}
		want := slices.Concat(nemesis.DatabaseFaults[kind], nemesis.HostFaults, []string{"fleet_kill"})
		if kind == "postgres" {
			want = append(want, torture.Promoted)
		}
		if kind != "sqlite" {
			want = append(want, nemesis.NetworkFaults...)
		}
		for _, w := range want {
			if !got[w] {
				t.Errorf("%s: no %s", kind, w)
			}
		}
	}
}

// Fails when a torture that did almost nothing passes, or one that did enough does not.
func TestTooWeak(t *testing.T) {
	t.Parallel()
	weak := report{}
	weak.demand(2 * time.Minute)
	slices.Sort(weak.TooWeak)
	if want := []string{"faults", "reclaimed", "reclaims_timed", "runs"}; !slices.Equal(weak.TooWeak, want) {
		t.Errorf("nothing at all is too weak for %v, want %v", weak.TooWeak, want)
	}
	strong := report{Faults: 24, Figures: owners.Figures{Runs: 10_000, Reclaimed: 10, Timed: 4}}
	if strong.demand(2 * time.Minute); !strong.ok() {
		t.Errorf("%v", strong.TooWeak)
	}
	strong.Excused = 0.26
	if strong.demand(2 * time.Minute); !slices.Equal(strong.TooWeak, []string{"excused"}) {
		t.Errorf("with all excused for a quarter of the time: %v", strong.TooWeak)
	}
}
