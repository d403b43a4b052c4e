package health_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/tickslot/tickslot/health"
	"github.com/tickslot/tickslot/timer"
)

func ExampleNew() {
	timers, err := timer.New(timer.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	probes := health.New(timers)
	mux := http.NewServeMux()
	mux.Handle("/livez", probes)
	mux.Handle("/readyz", probes)

	for _, path := range []string{"/livez", "/readyz"} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		fmt.Println(path, w.Code)
		fmt.Print(w.Body)
	}
	// Output:
	// /livez 200
	// ok
	// /readyz 503
	// unhealthy
	// [-]started failed: the timers are not running yet
	// [-]ready failed: the timers are not running yet
}

// If a store that all hosts share is down, hosts are only degraded. A check without which this host
// cannot serve is required.
func ExampleCheck() {
	probes := health.New(nil,
		health.Check{Name: "store-reachable", Func: func() error { return errors.New("it does not answer") }},
		health.Check{Name: "disk", Func: func() error { return nil }, Required: true},
	)
	w := httptest.NewRecorder()
	probes.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz?verbose", nil))
	fmt.Println(w.Code, w.Header().Get("X-Health"))
	fmt.Print(w.Body)
	// Output:
	// 200 degraded
	// ok
	// [+]live ok
	// [+]started ok
	// [+]ready ok
	// [-]store-reachable failed: it does not answer
	// [+]disk ok
}

// Only requests with the right header see the errors.
func ExampleHandler_details() {
	probes := health.New(nil, health.Check{
		Name:     "database",
		Func:     func() error { return errors.New("shop-db.internal refuses connections") },
		Required: true,
	})
	probes.Details = func(r *http.Request) bool { return r.Header.Get("X-Ops") != "" }
	w := httptest.NewRecorder()
	probes.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	fmt.Print(w.Body)
	// Output:
	// unhealthy
	// [-]database failed
}

// The result of a flapping check changes only after the check has returned the new result for a
// while.
func ExampleDebounce() {
	well := true
	check := health.Debounce(10*time.Second, func() error {
		if well = !well; well {
			return nil
		}
		return errors.New("the connection broke")
	})
	probes := health.New(nil, health.Check{Name: "flaps", Func: check, Required: true})
	for range 3 {
		fmt.Println(probes.Ready())
	}
	// Output:
	// flaps: the connection broke
	// flaps: the connection broke
	// flaps: the connection broke
}
