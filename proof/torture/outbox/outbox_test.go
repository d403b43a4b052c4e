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
	"github.com/tickslot/tickslot/proof/torture/deliveries"
	"github.com/tickslot/tickslot/proof/torture/nemesis"
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

// Each database is tortured for a short time. In one additional torture with few other faults, a
// relay must take over. They run one at a time: if databases keep the machine so busy that the
// watch gets no answer, no failover can be timed.
//
// Fails when the outbox loses, repeats or reorders messages, a relay takes over too late, or a
// torture does not end.
func TestTorture(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	sqltest.RequirePostgres(t)
	sqltest.RequirePgBouncer(t)
	sqltest.RequireMariaDB(t)
	for _, x := range []struct {
		kind      string
		length    time.Duration
		failOvers int
	}{
		{"sqlite", 6 * time.Second, 0}, {"postgres", 6 * time.Second, 0}, {"pgbouncer", 6 * time.Second, 0},
		{"mariadb", 6 * time.Second, 0}, {"postgres", time.Second, 1},
	} {
		const lease = 3 * time.Second
		seed := uint64(time.Now().UnixNano())
		for x.failOvers == 0 && len(plan(x.kind, seed, x.length, lease)) < 2 { // one seed in nine has fewer
			seed++
		}
		r := run(t.Context(), x.kind, t.TempDir(), seed, x.length, x.failOvers, Timing{lease})
		t.Logf("%+v", r)
		if len(r.Broken) > 0 || r.Messages == 0 || r.Faults == 0 || r.Timed < x.failOvers {
			t.Errorf("%s: %v; %d messages, %d faults, %d fail-overs timed; %q", x.kind, r.Broken, r.Messages,
				r.Faults, r.Timed, r.Examples)
		}
	}
}

// Fails when a plan depends on more than its seed, or four minutes of it omit a fault.
func TestPlan(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"postgres", "pgbouncer", "mariadb", "sqlite"} {
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
		want := slices.Concat(nemesis.DatabaseFaults[kind], nemesis.HostFaults, []string{"fleet_kill",
			"receivers_hang"})
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
	if want := []string{"dropped", "fail_overs_timed", "faults", "messages", "rejected",
		"rolled_back"}; !slices.Equal(weak.TooWeak, want) {
		t.Errorf("nothing at all is too weak for %v, want %v", weak.TooWeak, want)
	}
	strong := report{Faults: 24, Figures: deliveries.Figures{Messages: 1200, Dropped: 10, RolledBack: 1, Rejected: 1,
		Timed: 4}}
	if strong.demand(2 * time.Minute); !strong.ok() {
		t.Errorf("%v", strong.TooWeak)
	}
	strong.Excused = 0.26
	if strong.demand(2 * time.Minute); !slices.Equal(strong.TooWeak, []string{"excused"}) {
		t.Errorf("with all excused for a quarter of the time: %v", strong.TooWeak)
	}
}
