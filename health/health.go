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
//   - /livez returns 503 if Live fails, which means that only a restart helps. Orchestrators then
//     restart the process, so Live must not depend on the store or on anything else that hosts
//     share.
//   - /readyz returns 503 if Live, Started, Ready or a required check fails. This host should then
//     get no requests, for example because it is draining. If any other check fails, the host is
//     degraded and the status stays 200.
//   - /startupz returns 503 until Started succeeds.
//   - /readyz/store-reachable returns 503 if the check of that name fails, whether or not the check
//     is required. It returns 404 if there is no such check.
//
// In all other cases a probe returns 200. With a 200 or a 503, the header X-Health is ok, degraded
// or unhealthy. The body begins with ok, or with unhealthy and the checks that caused it. ?verbose
// lists every check, and ?exclude=store-reachable leaves out a check. A client whose Accept header
// prefers application/health+json gets that format (draft-inadarei-api-health-check: pass, warn,
// fail).
//
// # When the store is down
//
// All hosts lose a shared store at the same moment. If that made them unready, the load balancer
// would have no host left, although each host could still serve. Therefore they only become
// degraded; alert on metrics instead. If a host cannot serve without the store, make that check
// required:
//
//	health.New(timers, health.Check{Name: "store-reachable", Func: timers.StoreReachable,
//		Required: true})
//
// Wrap a check that may flap in [Debounce]. The checks of a timer.Scheduler do not flap.
//
// # What is not promised
//
// A probe calls the functions of the Source and of the checks. If one of them calls a server, every
// probe does. A check that panics or takes longer than [Timeout] fails; the other checks are still
// reported. A 200 describes only the moment of the probe. Set the scheduler's Config.PreStopDelay
// to the time that your load balancer takes to notice a change.
//
// The body shows the errors of the checks to every client, unless [Handler.Details] returns false.
// Errors are shown by default because probes belong on a private port, where an operator needs the
// reason. Text in an error that looks like a password (user:password@host, password=…) is masked,
// but do not rely on the mask. On a public port, make Details return false. Clients then still see
// the names of the checks and the status.
package health

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
)

// A Source reports the state of the process. A *timer.Scheduler is a Source. Each probe calls these
// functions, each in its own goroutine. A function is never called while its previous call is still
// running. The functions should only read memory.
type Source interface {
	// Live returns an error when only a restart of the process helps.
	Live() error
	// Started returns an error until the process has started.
	Started() error
	// Ready returns an error when this host should get no requests.
	Ready() error
	// Checks returns additional checks for /readyz by name. If one fails, the host is degraded. New
	// calls Checks once.
	Checks() map[string]func() error
}

// A Check is one condition that /readyz reports. Each probe waits for a check for at most Timeout
// (500 ms).
type Check struct {
	// Name is the name of the check in /readyz?verbose, ?exclude= and /readyz/<name>. A check
	// passed to New replaces the Source's check of the same name. If several checks passed to New
	// have the same name, that name selects all of them. Default "unnamed".
	Name string
	// Func returns an error if the check fails. Default nil: the check always succeeds.
	Func func() error
	// Required makes the host unhealthy, and therefore not ready, if the check fails. Default
	// false: the host is only degraded.
	Required bool
}

// A Handler serves /livez, /readyz and /startupz, and nothing else. Mount it at the root of a mux
// or behind http.StripPrefix.
type Handler struct {
	// Details reports whether a client may see the errors of the checks. If it returns false, the
	// client sees only which checks failed. It is called for every probe and may inspect the
	// request's headers. Set Details before the first probe. Default nil: every client may see the
	// errors.
	Details func(*http.Request) bool

	probes map[string][]*check
}

// New returns a Handler for a source and additional checks for /readyz. It does not call any check.
// If source is nil, the process is live and started, and it is ready unless a required check fails.
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

// Live returns an error if /livez would return 503. Live, Started and Ready serve probes that do
// not use HTTP.
func (h *Handler) Live() error { return h.ask("livez") }

// Started returns an error if /startupz would return 503.
func (h *Handler) Started() error { return h.ask("startupz") }

// Ready returns an error if /readyz would return 503.
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
