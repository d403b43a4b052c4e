package page_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/dlock"
)

// The page of a service, behind a proxy that names the user in a header. One of them may act.
func Example() {
	registry, err := cluster.New(cluster.Config{
		Store:  cluster.NewMemoryStore(), // in a service: sqlregistry or redisregistry
		Holder: dlock.Holder{Host: "node-1", PID: 4711, ID: "x"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	user, err := page.ProxyHeader("X-Forwarded-User", "192.0.2.0/24") // the network of the proxy
	if err != nil {
		fmt.Println(err)
		return
	}
	ops, err := page.New(page.Config{
		Registry: registry, // and Timers: the scheduler of this process
		Authorize: func(r *http.Request) page.Access {
			access := user(r)
			access.Act = access.By == "ann"
			return access
		},
		Hosts: []string{"ops.example.com"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("/ops/", ops)

	for _, user := range []string{"", "bob"} {
		r := httptest.NewRequest("GET", "https://ops.example.com/ops/timers", nil)
		r.Header.Set("Accept", "application/json")
		r.Header.Set("X-Forwarded-User", user)
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, r)
		fmt.Println(answer.Code, answer.Header().Get("Content-Type"))
	}
	// Output:
	// 403 application/json
	// 200 application/json
}
