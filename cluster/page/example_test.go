package page_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/dlock"
)

// The page of a service. Who may act is said by a header that its proxy sets.
func Example() {
	registry, err := cluster.New(cluster.Config{
		Store:  cluster.NewMemoryStore(), // in a service: sqlregistry or redisregistry
		Holder: dlock.Holder{Host: "node-1", PID: 4711, ID: "x"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ops, err := page.New(page.Config{
		Registry: registry, // and Timers: the scheduler of this process
		Authorize: func(r *http.Request) page.Access {
			user := r.Header.Get("X-User")
			return page.Access{Read: user != "", Act: user == "ann", By: user}
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
		r.Header.Set("X-User", user)
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, r)
		fmt.Println(answer.Code, answer.Header().Get("Content-Type"))
	}
	// Output:
	// 403 application/json
	// 200 application/json
}
