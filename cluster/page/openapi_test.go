package page_test

import (
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/cluster/page/internal/pagetest"
	"github.com/tickslot/tickslot/internal/testkit"
)

// The description of the JSON has each page that is in the navigation, and each field that a page
// has, at any depth. Those of the sections are tested with them.
//
// Fails when a view gets a field or a page that assets/openapi.json does not have.
func TestOpenAPIDescribesThePages(t *testing.T) {
	t.Parallel()
	f := newFleet(t, page.Config{Authorize: allow(operator)})
	f.host("h", cluster.Heartbeat{Environment: "test"}, cluster.HostDetail{
		Timers:  []cluster.TimerDetail{{Name: "a", MaxConcurrency: 2, MaxPerHost: 1, OnStoreDown: "skip"}},
		Runners: []cluster.RunnerDetail{{Kind: "k", Name: "n", State: "s", Err: "e", ChangedAt: time.Now()}}})
	f.host("other", cluster.Heartbeat{}, cluster.HostDetail{
		Timers: []cluster.TimerDetail{{Name: "a", MaxConcurrency: 3}}})
	for _, name := range []string{"timer:a", "leader:b"} {
		if _, err := f.session.Semaphore(name, 2).TryAcquire(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	f.registry.RecordRun(cluster.Run{Timer: "a", Outcome: "error", Err: "e", By: "ann", Tick: time.Now()})
	f.post("do?action=pause&name=a", map[string][]string{"for": {"1h"}})
	f.has("timers", "timer?name=a", ">error</span>")
	f.has("timer?name=a", "Paused <bdi>by ann")
	for _, target := range []string{"", "timers", "timer", "hosts", "leases", "leaders", "events"} {
		r := request("GET", target+"?name=a", "")
		r.Header.Set("Accept", "application/json")
		var missing []string
		err := testkit.Poll(5*time.Second, "it answers", func() (err error) {
			missing, err = pagetest.MissingInOpenAPI([]byte(f.get("openapi.json")), "/"+target,
				serve(f.page, r).Body.Bytes())
			return err
		})
		if err != nil || len(missing) > 0 {
			t.Errorf("%v are not described: %v", missing, err)
		}
	}
}
