package ping_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/tickslot/tickslot/contrib/ping"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// A monitor receives pings at the start and the success of a nightly report.
func Example() {
	monitor := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Method, r.URL.Path)
	}))
	defer monitor.Close()
	pings, err := ping.New(map[string]string{"report": monitor.URL + "/0b7c0d2e"}, ping.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	timers, err := timer.New(timer.Config{Hooks: pings.TimerHooks(timer.Hooks{})}, timer.Timer{
		Name:     "report",
		Schedule: schedule.At(time.Now().Add(50 * time.Millisecond)),
		Run:      func(context.Context) error { stop(); return nil },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := timers.Run(ctx); err != nil {
		fmt.Println(err)
	}
	soon, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := pings.Flush(soon); err != nil {
		fmt.Println(err)
	}
	// Output:
	// POST /0b7c0d2e/start
	// POST /0b7c0d2e
}
