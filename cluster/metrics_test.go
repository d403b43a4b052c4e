package cluster_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/dlock"
)

// timed is a runner that also has timers.
type timed struct{ runner }

func (timed) RegisteredTimers(show func(name string, maxConcurrency, maxPerHost int, onStoreDown string)) {
	show("report", 1, 1, "run_local")
	show("mail", -1, -1, "none")
}

// A host exports the metrics of the fleet from its last read, and every host reads from time to
// time, even without viewers. A scrape does not call the store.
//
// Fails when no host reads without a viewer, when an outdated read is exported, or when Collect
// reads the store.
func TestMetricsOfTheFleet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		var regs []*prometheus.Registry
		for range 3 {
			reg := prometheus.NewRegistry()
			h := f.start(cluster.Config{Locks: f.locks, Registerer: reg})
			h.Add(timed{func(func(kind, name, state string, changedAt time.Time, err error)) {}})
			regs = append(regs, reg)
		}
		session := f.hosts[0].session(f.locks, dlock.Hooks{})
		lease, err := session.Mutex("leader:relay").TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		for round := range 20 {
			for _, h := range f.hosts {
				h.link.count()
			}
			for name, want := range map[string]float64{"hosts/state/alive": 3, "hosts/state/gone": 0,
				"timer_hosts/timer/report": 3, "leases/kind/leader": 1} {
				if got := most(t, regs, name); got != want {
					t.Errorf("round %d: %s is %v, want %v", round, name, got, want)
				}
			}
			for i, h := range f.hosts {
				if calls := h.link.count(); len(calls) != 0 {
					t.Errorf("a scrape made calls: %v", calls)
				}
				if at := value(t, regs[i], "tickslot_cluster_last_write_timestamp_seconds", "", ""); time.Since(
					time.UnixMilli(int64(at*1000))) > ttl {
					t.Errorf("the last write was at %v", at)
				}
			}
			time.Sleep(time.Minute)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		closeSession(t, session)
		h, reg := f.hosts[0], regs[0]
		h.link.set(func(l *link) { l.err = errDown })
		time.Sleep(10 * time.Minute)
		if value(t, reg, "tickslot_cluster_failing", "", "") != 1 ||
			value(t, reg, "tickslot_cluster_hosts", "", "") != -1 ||
			value(t, reg, "tickslot_cluster_store_errors_total", "op", "write") < 10 {
			t.Error("a registry that is down")
		}
		h.link.heal()
		time.Sleep(10 * time.Minute)
		if value(t, reg, "tickslot_cluster_failing", "", "") != 0 {
			t.Error("a registry that works again")
		}
		if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
			t.Errorf("%+v, %v", problems, err)
		}
		f.end()
		if n, err := testutil.GatherAndCount(reg); err != nil || n != 0 {
			t.Errorf("%d series are left after Run, %v", n, err)
		}
	})
}

// A second Registry on the same Registerer is a fault of the Config. The error describes the
// repair, and the repair works.
//
// Fails when New returns only the error of Prometheus.
func TestMetricsOfTwoRegistriesOnOneRegisterer(t *testing.T) {
	reg := prometheus.NewRegistry()
	config := cluster.Config{Store: cluster.NewMemoryStore(), Registerer: reg}
	if _, err := cluster.New(config); err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.New(config); err == nil || !strings.Contains(err.Error(), "prometheus.WrapRegistererWith") {
		t.Errorf("err %v", err)
	}
	reg = prometheus.NewRegistry()
	for _, name := range []string{"a", "b"} {
		config.Registerer = prometheus.WrapRegistererWith(prometheus.Labels{"registry": name}, reg)
		if _, err := cluster.New(config); err != nil {
			t.Error(err)
		}
	}
}

// most returns the largest value of a series over all hosts. series has the form
// "hosts/state/alive".
func most(t *testing.T, regs []*prometheus.Registry, series string) float64 {
	t.Helper()
	name, rest, _ := strings.Cut(series, "/")
	label, labelValue, _ := strings.Cut(rest, "/")
	found := -1.
	for _, reg := range regs {
		found = max(found, value(t, reg, "tickslot_cluster_"+name, label, labelValue))
	}
	return found
}
