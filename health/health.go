// Package health answers the probes of load balancers and orchestrators over HTTP:
//
//		mux.Handle("/", health.Handler(health.Checks{
//			Live:     timers.Live,
//			Ready:    timers.Ready,
//			Degraded: timers.Degraded,
//		}))
//
//	  - GET /livez is 200 unless Live fails: only a restart helps. Orchestrators restart on it, so it
//	    has nothing to do with the store.
//	  - GET /readyz is 200 unless Live or Ready fails: this host should get no requests, for instance because it is
//	    draining. A store that is down makes a host degraded, not unready: all hosts would be so at once, and
//	    a load balancer would have none left. The header X-Health then says degraded, the status stays 200.
//
// The status is exactly 200 or 503. The body begins with "ok" or with what is wrong; with ?verbose it lists every
// check. Checks are functions of the standard library's types, so this package knows nothing of timers.
//
// A probe calls the checks, which must read memory only: then it costs the store nothing and cannot flap.
package health

import (
	"fmt"
	"net/http"
	"strings"
)

// Checks say how the process is; nil means well. They are called on every probe, from many goroutines.
type Checks struct {
	// Live fails when only a restart of the process helps. Default: never.
	Live func() error
	// Ready fails when this host should get no requests. Default: never.
	Ready func() error
	// Degraded fails when something is wrong that does not keep this host from serving. Default: never.
	Degraded func() error
}

// Handler serves /livez and /readyz; mount it at the root of a mux, or behind http.StripPrefix.
func Handler(c Checks) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /livez", Live(c))
	mux.Handle("GET /readyz", Ready(c))
	return mux
}

// Live is the handler of /livez alone.
func Live(c Checks) http.Handler {
	return probe([]check{{"live", c.Live, true}})
}

// Ready is the handler of /readyz alone.
func Ready(c Checks) http.Handler {
	return probe([]check{{"live", c.Live, true}, {"ready", c.Ready, true}, {"degraded", c.Degraded, false}})
}

type check struct {
	name  string
	run   func() error
	fatal bool // a failure makes the status 503
}

func probe(checks []check) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, state := http.StatusOK, "ok"
		var first, all strings.Builder
		for _, c := range checks {
			err := call(c.run)
			switch {
			case err == nil:
				fmt.Fprintf(&all, "[+] %s ok\n", c.name)
				continue
			case c.fatal:
				status, state = http.StatusServiceUnavailable, "unhealthy"
				fmt.Fprintf(&first, "%s: %v\n", c.name, err)
			case status == http.StatusOK:
				state = "degraded"
			}
			fmt.Fprintf(&all, "[-] %s: %v\n", c.name, err)
		}
		if status == http.StatusOK {
			first.WriteString("ok\n")
		}
		h := w.Header()
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Health", state)
		w.WriteHeader(status)
		if r.URL.Query().Has("verbose") {
			first.WriteString(all.String())
		}
		fmt.Fprint(w, first.String()) // a prober that went away needs no answer
	})
}

// call turns a panic of a check into its failure.
func call(run func() error) (err error) {
	if run == nil {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the check panicked: %v", p)
		}
	}()
	return run()
}
