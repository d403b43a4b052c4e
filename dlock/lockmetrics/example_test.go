package lockmetrics_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/lockmetrics"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// All locks of orders share one label, however many there are.
func Example() {
	m := lockmetrics.New(lockmetrics.Options{Label: func(name string) string {
		kind, _, _ := strings.Cut(name, ":")
		return kind
	}})
	registry := prometheus.NewRegistry()
	registry.MustRegister(m)
	session, err := dlock.NewSession(memlock.New(), dlock.SessionOptions{Hooks: m.Hooks(dlock.Hooks{})})
	if err != nil {
		panic(err)
	}
	for _, name := range []string{"order:17", "order:17", "order:18"} {
		_, err := session.Mutex(name).TryAcquire(context.Background())
		fmt.Println(name, err == nil)
	}
	_ = session.Close(context.Background()) // returns after the hooks were called

	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(page.Body.String()) {
		if strings.HasPrefix(line, "tickslot_lock_attempts_total") {
			fmt.Print(line)
		}
	}
	// Output:
	// order:17 true
	// order:17 false
	// order:18 true
	// tickslot_lock_attempts_total{lock="order",result="acquired"} 2
	// tickslot_lock_attempts_total{lock="order",result="full"} 1
}
