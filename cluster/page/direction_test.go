package page_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page"
)

// A name in a script that is read from right to left does not reorder what stands beside it: each
// is isolated in a <bdi>.
//
// Fails when a template shows the name of a timer, host, loop or version without one.
func TestNamesAreIsolatedFromTheTextBesideThem(t *testing.T) {
	t.Parallel()
	const name = "\u05d3\u05d5\u05d7" // in Hebrew letters
	f := newFleet(t, page.Config{Authorize: allow(operator)})
	f.host(name, cluster.Heartbeat{AppVersion: name, Version: name, Environment: name}, cluster.HostDetail{
		Timers:  []cluster.TimerDetail{{Name: name, MaxConcurrency: 1}},
		Runners: []cluster.RunnerDetail{{Kind: name, Name: name, State: "running", Err: name}}})
	for _, lock := range []string{"timer:" + name, "leader:" + name} {
		if _, err := f.session.Semaphore(lock, 1).TryAcquire(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	f.registry.RecordRun(cluster.Run{Timer: name, Outcome: "error", Err: name, By: name})
	f.registry.RecordEvent(cluster.Event{Kind: cluster.EventOperator, Name: name, Text: name})
	f.post(page.URL("do", "action", "pause", "name", name), map[string][]string{"for": {"1h"}, "note": {name}})
	f.has("events?state=operator", name)
	f.has("leases", name)
	f.has(page.URL("timer", "name", name), "Paused <bdi>by ann", ">error</span>")
	text := regexp.MustCompile(`<(/?[a-z0-9]+)[^>]*>([^<]*)`)
	for _, target := range []string{"", "timers", page.URL("timer", "name", name), "hosts", "leases", "leaders",
		"events", page.URL("confirm", "action", "pause", "name", name)} {
		found := 0
		for _, m := range text.FindAllStringSubmatch(f.get(target), -1) {
			if !strings.Contains(m[2], name) {
				continue
			}
			found++
			if m[1] != "bdi" && m[1] != "title" && m[1] != "option" { // these two stand alone
				t.Errorf("%s: a name is not isolated: %s", target, m[0])
			}
		}
		if found == 0 {
			t.Errorf("%s has no name", target)
		}
	}
}
