// Package health answers the probes of load balancers and orchestrators over HTTP:
//
//	probes := health.New(health.Checks{
//		Live:    timers.Live,
//		Started: timers.Started,
//		Ready:   timers.Ready,
//		More: []health.Check{
//			{Name: "store", Func: timers.StoreReachable},
//			{Name: "leases", Func: timers.LeasesRenewed},
//			{Name: "limits", Func: timers.LimitsAgree},
//			{Name: "timers", Func: timers.TimersSucceed},
//		},
//	})
//	mux.Handle("/livez", probes)
//	mux.Handle("/readyz", probes)
//	mux.Handle("/readyz/", probes) // /readyz/store
//	mux.Handle("/startupz", probes)
//
// What a probe answers:
//
//   - /livez is 503 if Live fails: only a restart helps. Orchestrators restart on it, so it must have nothing to do with the
//     store, nor with anything else that hosts share.
//   - /readyz is 503 if Live, Started, Ready or a required check fails: this host should get no requests, for instance because it
//     is draining. A failure of any other check makes the host degraded, and the status stays 200.
//   - /startupz is 503 until Started is well.
//   - /readyz/store is 503 if that one check fails, required or not. 404: there is none of that name.
//
// The status is exactly 200 or 503, and the header X-Health says ok, degraded or unhealthy. The body begins with ok, or with
// unhealthy and what made it so; with ?verbose it lists every check. ?exclude=store leaves a check out. Who prefers application/health+json in
// Accept gets that (draft-inadarei-api-health-check: pass, warn, fail).
//
// # A store that is down
//
// All hosts lose a store that they share at the same moment. If that made them unready, the load balancer would have no host left,
// though each could serve: so it makes them degraded, and it is metrics that should wake somebody up. Whoever cannot serve
// without it says Required: true. A check that may go back and forth is calmed by [Debounce]; the timers' own StoreReachable
// is calm already.
//
// # What is not promised
//
// A probe reads memory only, and is as good as the functions it is given: one that calls a server makes every probe a call. A check that panics has
// failed, and so has one that takes longer than [Limit]; neither keeps the others from being seen. A probe that is answered 200 says how it was then:
// give Scheduler's Config.PreStopDelay the time that your load balancer takes to notice.
//
// The body shows the errors of the checks to whoever can reach it, unless [Checks.Details] says no. That is the default because probes belong
// on a port that the world does not reach, and there "store failed" without its reason is a riddle at night. What looks like a password in an error
// (user:password@host, password=…) is masked: a safety net, and no promise. On a port that the world does reach, let Details return false: the
// names of the checks and the status remain.
package health

import (
	"errors"
	"fmt"
	"net/http"
)

// Checks say how the process is. Its functions return nil when it is well. They are called on every probe, each by a goroutine of its own and once at
// a time, and should do nothing but read memory. A nil function is always well.
type Checks struct {
	// Live fails when only a restart of the process helps. Default: never.
	Live func() error
	// Started fails until the process has started. Default: never.
	Started func() error
	// Ready fails when this host should get no requests. Default: never.
	Ready func() error
	// More are what else there is to know. Default: none.
	More []Check
	// Details says whether whoever asks may see the errors of the checks, or only which have failed. It is asked on every
	// probe: look at a header, or return false. Default: everybody may.
	Details func(*http.Request) bool
}

// A Check is one thing that may be wrong.
type Check struct {
	// Name is how /readyz?verbose shows it and ?exclude= and /readyz/<name> find it. Checks of the same name are found together.
	Name string
	// Func returns what is wrong. Default: nothing.
	Func func() error
	// Required makes the host unhealthy, and no longer ready, if it fails. Default: only degraded.
	Required bool
}

// A Handler serves /livez, /readyz and /startupz, and nothing else. Mount it at the root of a mux or behind http.StripPrefix.
type Handler struct {
	probes  map[string][]*check
	details func(*http.Request) bool
}

// New returns a Handler. It calls no check.
func New(c Checks) *Handler {
	live := &check{name: "live", run: c.Live, required: true}
	started := &check{name: "started", run: c.Started, required: true}
	ready := []*check{live, started, {name: "ready", run: c.Ready, required: true}}
	for _, o := range c.More {
		if o.Name == "" {
			o.Name = "unnamed"
		}
		ready = append(ready, &check{name: o.Name, run: o.Func, required: o.Required})
	}
	return &Handler{
		probes:  map[string][]*check{"livez": {live}, "readyz": ready, "startupz": {started}},
		details: c.Details,
	}
}

// Live returns an error when /livez is 503. Like Started and Ready it is for those who ask by other means than HTTP.
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
