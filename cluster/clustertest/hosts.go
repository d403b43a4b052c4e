package clustertest

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/dlock"
)

var hosts = []promise{
	{"hosts/a heartbeat with its detail is a row", func(c *check) {
		h := heartbeat("a")
		w, at := c.writeTo(c.Store, cluster.Batch{Host: &h})
		if w.HostUnknown {
			c.errorf("HostUnknown of a heartbeat that has its Detail")
		}
		rows, read := c.read()
		if len(rows.Hosts) != 1 {
			c.fatalf("%d hosts, want 1", len(rows.Hosts))
		}
		c.sameHost(rows.Hosts[0], h)
		c.ago("UpFor", rows.Hosts[0].UpFor, time.Hour, at, read)
		c.ago("SeenAgo", rows.Hosts[0].SeenAgo, 0, at, read)
	}},
	{"hosts/a heartbeat without its detail leaves the detail", func(c *check) {
		h := heartbeat("a")
		c.write(cluster.Batch{Host: &h})
		next := h
		next.Detail, next.UpFor, next.ClockOffset, next.TTL = nil, 2*time.Hour, time.Second, time.Minute
		next.AppVersion, next.Environment, next.Version = "2", "test", "v1"
		w, at := c.writeTo(c.Store, cluster.Batch{Host: &next})
		if w.HostUnknown {
			c.errorf("HostUnknown of a host that has a row")
		}
		rows, read := c.read()
		if len(rows.Hosts) != 1 {
			c.fatalf("%d hosts, want 1", len(rows.Hosts))
		}
		next.Detail = h.Detail
		c.sameHost(rows.Hosts[0], next)
		c.ago("UpFor", rows.Hosts[0].UpFor, 2*time.Hour, at, read)
		c.ago("SeenAgo", rows.Hosts[0].SeenAgo, 0, at, read)
	}},
	{"hosts/a heartbeat with another detail replaces it", func(c *check) {
		h := heartbeat("a")
		c.write(cluster.Batch{Host: &h})
		h.Detail = json.RawMessage(`{}`)
		c.write(cluster.Batch{Host: &h})
		c.sameHost(c.host(), h)
	}},
	{"hosts/a host without a row is unknown until its detail comes", func(c *check) {
		h := heartbeat("a")
		heartbeat := h
		heartbeat.Detail = nil
		w, _ := c.writeTo(c.Store, cluster.Batch{Host: &heartbeat, Leases: []cluster.LeaseRecord{leaseRecord("l", "a")},
			Events: []cluster.Event{event("e", 0)}, Runs: []cluster.Run{run("r", "t", 0)}})
		if !w.HostUnknown {
			c.errorf("a host without a row is not HostUnknown")
		}
		rows, _ := c.read()
		if len(rows.Hosts) != 0 || len(rows.Leases) != 1 || len(rows.Events) != 1 || len(rows.Runs) != 1 {
			c.errorf("hosts, leases, events, runs: %d %d %d %d, want 0 1 1 1", len(rows.Hosts), len(rows.Leases),
				len(rows.Events), len(rows.Runs))
		}
		heartbeat.Left = true
		if w, _ := c.writeTo(c.Store, cluster.Batch{Host: &heartbeat}); !w.HostUnknown {
			c.errorf("a host without a row that leaves is not HostUnknown")
		}
		c.write(cluster.Batch{Host: &h})
		c.sameHost(c.host(), h)
	}},
	{"hosts/a host that left stays so, even if an older heartbeat comes late", func(c *check) {
		h := heartbeat("a")
		c.write(cluster.Batch{Host: &h})
		left := h
		left.Detail, left.UpFor, left.Left = nil, h.UpFor+10*time.Minute, true
		c.write(cluster.Batch{Host: &left})
		left.Detail = h.Detail
		c.sameHost(c.host(), left)
		late := h
		late.UpFor += 5 * time.Minute
		late.Detail = json.RawMessage(`{"late":true}`)
		c.write(cluster.Batch{Host: &late})
		c.sameHost(c.host(), left)
		late.Detail = nil
		if w, _ := c.writeTo(c.Store, cluster.Batch{Host: &late}); w.HostUnknown {
			c.errorf("HostUnknown of a late heartbeat of a host that has a row")
		}
		c.sameHost(c.host(), left)
		again := h
		again.UpFor += 20 * time.Minute
		c.write(cluster.Batch{Host: &again})
		c.sameHost(c.host(), again)
	}},
	{"hosts/one of another environment is refused, and others see it", func(c *check) {
		fleet := heartbeat("a")
		c.write(cluster.Batch{Host: &fleet})
		stranger := c.registry(cluster.Config{Store: c.Store, Environment: "staging", Holder: holder("b")})
		if _, err := stranger.Admit(c.ctx, nil); err == nil || !strings.Contains(err.Error(), `"prod"`) {
			c.errorf("it is admitted: %v", err)
		}
		elsewhere := c.registry(cluster.Config{Store: c.Other, Environment: "staging", Holder: holder("b")})
		if _, err := elsewhere.Admit(c.ctx, nil); err != nil {
			c.errorf("it is refused with another prefix: %v", err)
		}
		seen := func(when string, left bool) {
			s, err := c.registry(cluster.Config{Store: c.Store, Environment: "prod"}).Snapshot(c.ctx)
			if err != nil || len(s.Hosts) != 2 || len(s.OtherEnvironments) > 0 {
				c.fatalf("%s: %+v, %v, want 2 hosts, and none of another environment", when, s, err)
			}
			if a, b := s.Hosts[0], s.Hosts[1]; a.State != cluster.HostAlive || b.State != cluster.HostRefused ||
				b.Left != left {
				c.errorf("%s: the hosts are %q and %q, left %v", when, a.State, b.State, b.Left)
			}
		}
		seen("at once", false)
		ended, end := context.WithCancel(c.ctx)
		end()
		if err := stranger.Run(ended); err == nil {
			c.errorf("Run of the registry returns no error")
		}
		seen("after it has stopped", true)
	}},
	{"hosts/what their timers do without the store is read as it was written", func(c *check) {
		writer := c.registry(cluster.Config{Store: c.Store, Holder: holder("a")})
		writer.Add(timers{{"bill", 1, 1, "skip"}, {"local", 4, 2, "none"}, {"mail", 3, 2, "run_local"}, {"sync", -1, -1,
			"run_local"}})
		ended, end := context.WithCancel(c.ctx)
		end()
		if err := writer.Run(ended); err != nil { // it writes what the host is, and that it has left
			c.errorf("Run of the registry: %v", err)
		}
		s, err := c.registry(cluster.Config{Store: c.Store, Holder: holder("b")}).Snapshot(c.ctx)
		if err != nil || len(s.Hosts) != 1 {
			c.fatalf("%+v, %v, want 1 host", s, err)
		}
		c.same("timers", s.Hosts[0].Timers, []cluster.TimerDetail{
			{Name: "bill", MaxConcurrency: 1, OnStoreDown: "skip"},
			{Name: "local", MaxConcurrency: 4, MaxPerHost: 2, OnStoreDown: "none"},
			{Name: "mail", MaxConcurrency: 3, MaxPerHost: 2},
			{Name: "sync", MaxConcurrency: -1}})
	}},
	{"hosts/are told apart by host, process and id", func(c *check) {
		for _, change := range []func(*cluster.Heartbeat){
			func(*cluster.Heartbeat) {},
			func(h *cluster.Heartbeat) { h.Holder.Host = "b" },
			func(h *cluster.Heartbeat) { h.Holder.PID = 1 },
			func(h *cluster.Heartbeat) { h.Holder.ID = "c" },
			func(h *cluster.Heartbeat) { h.Holder = dlock.Holder{Host: "a/1", PID: 2, ID: "c"} },
			func(h *cluster.Heartbeat) { h.Holder = dlock.Holder{Host: "a", PID: 1, ID: "2/c"} },
		} {
			h := heartbeat("a")
			change(&h)
			c.write(cluster.Batch{Host: &h})
		}
		if rows, _ := c.read(); len(rows.Hosts) != 6 {
			c.errorf("%d hosts, want 6", len(rows.Hosts))
		}
	}},
}

// registry returns a Registry that discards its log.
func (c *check) registry(o cluster.Config) *cluster.Registry {
	o.Logger = slog.New(slog.DiscardHandler)
	r, err := cluster.New(o)
	if err != nil {
		c.fatalf("New: %v", err)
	}
	return r
}

// timers is a part of a process that has timers.
type timers []struct {
	name                string
	concurrency, onHost int
	down                string
}

// Runners implements cluster.Runner.
func (timers) Runners(func(kind, name, state string, changedAt time.Time, err error)) {}

// RegisteredTimers shows the timers to a registry.
func (t timers) RegisteredTimers(show func(name string, maxConcurrency, maxPerHost int, onStoreDown string)) {
	for _, one := range t {
		show(one.name, one.concurrency, one.onHost, one.down)
	}
}
