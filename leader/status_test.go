package leader_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/leader"
)

var ann = driver.Cause{By: "ann", Note: "maintenance"}

// An operator pauses a role: the leader continues, and no host is elected after it; every host
// reports who paused it, and none is unhealthy. A term that is revoked is lost, and another host
// leads next.
//
// Fails when a pause is taken for a leader or for a failure, and when the host whose term was
// revoked is the first to try again.
func TestPausedAndRevoked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		a := f.start(leader.Role{RetryInterval: interval})
		time.Sleep(time.Second)
		b := f.start(leader.Role{RetryInterval: interval})
		time.Sleep(time.Minute)
		if err := f.store.Revoke(t.Context(), "leader:relay", 0, a.Status().Fence, ann); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if f.leads() != b || a.Status().Terms[leader.OutcomeLeaseLost] != 1 ||
			!strings.Contains(a.log.String(), "ann") {
			t.Errorf("%+v\n%s", a.Status(), a.log.String())
		}
		pause := driver.Update{Pause: &driver.Pause{Cause: ann, For: time.Hour}}
		if err := f.store.Update(t.Context(), "leader:relay", pause); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if f.leads() != b {
			t.Error("the pause has ended a term")
		}
		b.stop(t)
		time.Sleep(20 * time.Minute)
		s := a.Status()
		if s.State != leader.StateStandby || s.Err == nil || !strings.Contains(s.Err.Error(), "paused by ann") {
			t.Errorf("%+v", s)
		}
		if err := a.Healthy(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		if f.leads() != a {
			t.Errorf("%+v after the pause", a.Status())
		}
		f.end()
	})
}

// The JSON of a Status has texts for errors and holders, instants in UTC, and no unknown values.
//
// Fails when a zero instant, holder or fence is written, when an error is written as {}, or when a
// panic of an error's method gets past it.
func TestStatusJSON(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		a := f.start(leader.Role{RetryInterval: interval})
		time.Sleep(time.Second)
		b := f.start(leader.Role{RetryInterval: interval})
		time.Sleep(time.Second)
		for h, want := range map[*host]string{
			a: `{"role":"relay","max":1,"state":"leading","changed_at":"2000-01-01T00:00:00Z","leader":"host-0/1/x",` +
				`"elected_at":"2000-01-01T00:00:00Z","leader_seen_at":"2000-01-01T00:00:02Z","slot":0,"fence":`,
			b: `{"role":"relay","max":1,"state":"standby","changed_at":"2000-01-01T00:00:01Z","leader":"host-0/1/x",` +
				`"elected_at":"2000-01-01T00:00:00Z","leader_seen_at":"2000-01-01T00:00:0`,
		} {
			text, err := json.Marshal(h.Status())
			if err != nil || !strings.HasPrefix(string(text), want) {
				t.Errorf("%v: %s\nwant %s", err, text, want)
			}
		}
		f.end()
		idle, err := leader.New(a.session, leader.Role{Name: "idle", Run: func(context.Context, *leader.Term) error {
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		s := idle.Status()
		s.Err = errors.New("no")
		text, err := json.Marshal(s)
		want := `{"role":"idle","max":1,"state":"stopped","err":"no",` +
			`"terms":{"failed":0,"lease_lost":0,"returned":0,"stopped":0}}`
		if err != nil || string(text) != want {
			t.Errorf("%v: %s\nwant %s", err, text, want)
		}
		s.Err = textlessError{}
		text, err = json.Marshal(s)
		if err != nil || !strings.Contains(string(text), "the Error method panicked: no text") {
			t.Errorf("%v: %s", err, text)
		}
	})
}

// A textlessError is one that a function of a role may return.
type textlessError struct{}

func (textlessError) Error() string { panic("no text") }

// The metrics agree with Status, pass Prometheus' linter, and are gone after Run.
//
// Fails when a metric is not read from the state, or stays registered.
func TestMetrics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		reg := prometheus.NewPedanticRegistry()
		h := f.start(leader.Role{RetryInterval: interval, Registerer: reg,
			Run: func(ctx context.Context, _ *leader.Term) error {
				select {
				case <-time.After(10 * time.Second):
					return errors.New("no")
				case <-ctx.Done():
					return nil
				}
			}})
		expect := func(want map[string]float64) {
			t.Helper()
			problems, err := testutil.GatherAndLint(reg)
			if err != nil || len(problems) > 0 {
				t.Error(problems, err)
			}
			families, err := reg.Gather()
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]float64{}
			for _, f := range families {
				for _, m := range f.GetMetric() {
					key := strings.TrimPrefix(f.GetName(), "tickslot_leader_")
					for _, l := range m.GetLabel() {
						key += " " + l.GetValue()
					}
					got[key] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
				}
			}
			for key, value := range want {
				if n, there := got[key]; !there || n != value {
					t.Errorf("%s is %v (there: %t), want %v", key, n, there, value)
				}
			}
		}
		time.Sleep(5 * time.Second)
		expect(map[string]float64{"leading relay": 1, "unhealthy relay": 0, "terms_total failed relay": 0,
			"seen_timestamp_seconds relay": float64(time.Now().Unix())})
		time.Sleep(5*time.Second + time.Millisecond)
		expect(map[string]float64{"leading relay": 0, "unhealthy relay": 0, "terms_total failed relay": 1})
		h.link.Inject(dlocktest.Error(errDown))
		time.Sleep(5 * time.Minute)
		expect(map[string]float64{"leading relay": 0, "unhealthy relay": 1, "terms_total failed relay": 1})
		f.end()
		if families, err := reg.Gather(); err != nil || len(families) > 0 {
			t.Errorf("%v, %v are left", err, families)
		}
	})
}
