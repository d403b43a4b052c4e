package billing_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/dlock"
)

// The test sends a request to the page's handler, without a server, to check who may read it.
func TestThePageAsksWhoItIs(t *testing.T) {
	registry, err := cluster.New(cluster.Config{Store: cluster.NewMemoryStore(),
		Holder: dlock.Holder{Host: "a", ID: "b"}})
	if err != nil {
		t.Fatal(err)
	}
	ops, err := page.New(page.Config{Registry: registry, Authorize: func(r *http.Request) page.Access {
		return page.Access{Read: r.Header.Get("X-User") == "ann"}
	}})
	if err != nil {
		t.Fatal(err)
	}

	for user, want := range map[string]int{"ann": http.StatusOK, "": http.StatusForbidden} {
		r := httptest.NewRequest("GET", "http://localhost/timers", nil)
		r.Header.Set("Accept", "application/json")
		r.Header.Set("X-User", user)
		answer := httptest.NewRecorder()
		ops.ServeHTTP(answer, r)
		if answer.Code != want {
			t.Errorf("%q: %d, want %d: %s", user, answer.Code, want, answer.Body)
		}
	}
}
