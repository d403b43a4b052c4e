// Package health answers the probes of load balancers and orchestrators over HTTP.
//
//	probes := health.New(timers) // a *timer.Scheduler, or any other Source
//	mux.Handle("/livez", probes)
//	mux.Handle("/readyz", probes)
//	mux.Handle("/readyz/", probes) // /readyz/store-reachable
//	mux.Handle("/startupz", probes)
//
// The probes are:
//
//   - /livez is 503 if Live fails: only a restart helps. Orchestrators then restart the process, so
//     Live must not depend on the store or on anything else that hosts share.
//   - /readyz is 503 if Live, Started, Ready or a required check fails: this host should get no
//     requests, for instance because it is draining. If any other check fails, the host is degraded
//     and the status stays 200.
//   - /startupz is 503 until Started succeeds.
//   - /readyz/store-reachable is 503 if the check of that name fails, required or not, and 404 if
//     there is no such check.
//
// In all other cases the status is 200 or 503, and the header X-Health is ok, degraded or
// unhealthy. The body begins with ok, or with unhealthy and the checks that caused it; ?verbose
// lists every check. ?exclude=store-reachable leaves out a check. A client whose Accept header
// prefers application/health+json gets that format (draft-inadarei-api-health-check: pass, warn,
// fail).
//
// # A store that is down
//
// All hosts lose a shared store at the same moment. If that made them unready, the load balancer
// would have no host left, although each could serve. Therefore they become only degraded; alert on
// metrics instead. If a host cannot serve without the store, require that check:
//
//	health.New(timers, health.Check{Name: "store-reachable", Func: timers.StoreReachable,
//		Required: true})
//
// Wrap a check that may flap in [Debounce]; the checks of a timer.Scheduler do not flap.
//
// # What is not promised
//
// A probe reads only memory if the functions that it calls do: a function that calls a server does
// so for every probe. A check that panics or takes longer than [Timeout] has failed; the other
// checks are still reported. A 200 describes the moment of the probe: set the scheduler's
// Config.PreStopDelay to the time that your load balancer takes to notice a change.
//
// The body shows the errors of the checks to every client, unless [Handler.Details] returns false.
// That is the default because probes belong on a private port, where an operator needs the reason.
// Text that looks like a password in an error (user:password@host, password=…) is masked, but do
// not rely on that: it is only a safety net. On a public port make Details return false: clients
// then still see the names of the checks and the status.
package health

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
)

// A Source reports the state of the process. A *timer.Scheduler is one. Each probe calls the
// functions, each in a goroutine of its own, and never while an earlier call is still running. They
// should only read memory.
type Source interface {
	// Live returns an error when only a restart of the process helps.
	Live() error
	// Started returns an error until the process has started.
	Started() error
	// Ready returns an error when this host should get no requests.
	Ready() error
	// Checks returns further checks of /readyz by name. If one fails, the host is degraded. New
	// calls Checks once.
	Checks() map[string]func() error
}

// A Check is one condition that /readyz reports. Each probe waits for it for at most Timeout
// (500 ms).
type Check struct {
	// Name is the check's name in /readyz?verbose, ?exclude= and /readyz/<name>. A check that is
	// given to New replaces the Source's check of the same name. If several checks given to New
	// have the same name, that name selects all of them. Default "unnamed".
	Name string
	// Func returns an error if the check fails. Default nil: the check always succeeds.
	Func func() error
	// Required makes the host unhealthy, and so not ready, if the check fails. Default false: the
	// host is only degraded.
	Required bool
}

// A Handler serves /livez, /readyz and /startupz, and nothing else. Mount it at the root of a mux
// or behind http.StripPrefix.
type Handler struct {
	// Details reports whether a client may see the errors of the checks, and not only which checks
	// failed. It is called for every probe: inspect a header, or return false. Set it before the
	// first probe. Default nil: every client may see them.
	Details func(*http.Request) bool

	probes map[string][]*check
}

// New returns a Handler for a source and further checks of /readyz. It calls no check. Without a
// source (nil) the process is live, started, and ready unless a required check fails.
func New(source Source, more ...Check) *Handler {
	live := &check{name: "live", required: true}
	started := &check{name: "started", required: true}
	ready := &check{name: "ready", required: true}
	checks := []*check{live, started, ready}
	more = slices.Clone(more)
	for i := range more {
		more[i].Name = cmp.Or(more[i].Name, "unnamed")
	}
	if source != nil {
		live.run, started.run, ready.run = source.Live, source.Started, source.Ready
		its := source.Checks()
		for _, name := range slices.Sorted(maps.Keys(its)) {
			if !slices.ContainsFunc(more, func(c Check) bool { return c.Name == name }) {
				checks = append(checks, &check{name: name, run: its[name]})
			}
		}
	}
	for _, c := range more {
		checks = append(checks, &check{name: c.Name, run: c.Func, required: c.Required})
	}
	return &Handler{probes: map[string][]*check{"livez": {live}, "readyz": checks, "startupz": {started}}}
}

// Live returns an error when /livez is 503. Live, Started and Ready serve probes that do not use
// HTTP.
func (h *Handler) Live() error { return h.ask("livez") }

// Started returns an error when /startupz is 503.
func (h *Handler) Started() error { return h.ask("startupz") }

// Ready returns an error when /readyz is 503.
func (h *Handler) Ready() error { return h.ask("readyz") }

func (h *Handler) ask(probe string) error {
	var errs []error
	for _, v := range run(h.probes[probe]) {
		if v.failed && v.required {
			errs = append(errs, fmt.Errorf("%s: %s", v.name, v.text))
		}
	}
	return errors.Join(errs...)
}
