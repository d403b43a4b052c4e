package commands_test

import (
	"strings"
	"testing"

	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/servertest"
)

// controlled makes a change, reads it back, and runs the doctor.
func controlled(t *testing.T, url string) {
	t.Helper()
	has(t, url, "pause report --for 2h --by ann --force --prefix shop:", "paused until")
	has(t, url, "explain report --prefix shop:", "report: paused", "by ann")
	has(t, url, "events ls --prefix shop:", "timer:report", "operator")
	has(t, url, "timers ls --prefix other:", "no timer is known")
}

// The commands reach the master named by the Sentinels, before and after a failover.
//
// Fails when a URL with several hosts is misread, or when the registry stays with the old master.
func TestSentinel(t *testing.T) {
	t.Parallel()
	s := redistest.NewSentinel(t, redistest.SentinelOptions{Sentinels: 3})
	hosts := "127.0.0.1:1," + strings.Join(s.SentinelAddrs(), ",") // the first host is down
	url := "redis-sentinel://:" + servertest.Canary + "@" + hosts + "/0?master=" + s.MasterName()
	controlled(t, url)
	for _, f := range butSlowTrips(runDoctor(t, url, "")) {
		if f.About != "settings for leases" { // expected, because of the replica and missing persistence
			t.Errorf("%+v", f)
		}
	}
	a := tickslot(t, strings.Replace(url, s.MasterName(), "nobody", 1), "doctor", "--calls", "1")
	if a.code != 1 || !strings.Contains(a.out, "FAIL connection") {
		t.Errorf("no such master: exit code %d: %s", a.code, a)
	}
	if err := s.Master.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.FailedOver(s.Replica); err != nil {
		t.Fatal(err)
	}
	controlled(t, url)
}

// The commands reach all nodes of a Cluster, no matter which of its hosts the URL names.
//
// Fails when names are searched on only one node.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t, 3, redistest.Options{Args: []string{"--appendonly", "yes"}})
	for _, hosts := range []string{strings.Join(c.Addrs(), ","), "127.0.0.1:1," + c.Addrs()[1]} {
		url := "redis-cluster://:" + servertest.Canary + "@" + hosts
		for _, timer := range strings.Fields("a b c d e f g h") {
			has(t, url, "limit "+timer+" 2 --by ann --force --prefix shop:", "limited to 2")
			has(t, url, "explain "+timer+" --prefix shop:", "its limit was set to 2 by ann")
		}
		controlled(t, url)
		if failed := butSlowTrips(runDoctor(t, url, "--prefix shop:")); len(failed) > 0 {
			t.Errorf("%+v", failed)
		}
	}
	if err := c.Nodes[2].Pause(); err != nil {
		t.Fatal(err)
	}
	a := tickslot(t, "redis-cluster://:"+servertest.Canary+"@"+c.Addrs()[0], "doctor", "--calls", "1")
	if a.code != 1 || !strings.Contains(a.out, "FAIL connection") {
		t.Errorf("a node stands still: exit code %d: %s", a.code, a)
	}
}

// Malformed URLs with several hosts cause errors that show the correct form.
//
// Fails when a malformed URL is accepted, or causes a panic.
func TestURLsOfSeveralHosts(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"redis-sentinel://h1,h2/0":           "must look like redis-sentinel://host1:26379,host2",
		"redis-sentinel://h1,,h2/0?master=m": "must look like",
		"redis-sentinel://h1/x?master=m":     "must look like",
		"rediss-sentinel://h1:y/0?master=m":  "must look like rediss-sentinel://",
		"redis-cluster://h1/1":               "must look like redis-cluster://host1:6379,host2",
		"redis-cluster://h1?bogus=1":         "must look like",
		"redis-cluster://":                   "must look like",
		"redis-nothing://h1":                 "must begin with",
		"redis-sentinel://127.0.0.1:1,[::1]/0?master=m&route_randomly=true": "hosts ls",
		"rediss-cluster://u:p%40%2F@[::1]:1,127.0.0.1:1":                    "hosts ls",
	} {
		a := tickslot(t, url, "hosts", "ls")
		if want == "hosts ls" { // the URL is valid, but no server is listening
			if a.code != 1 || strings.Contains(a.err, "URL") {
				t.Errorf("%s: exit code %d: %s", url, a.code, a)
			}
			continue
		}
		if a.code != 1 || !strings.Contains(a.err, want) {
			t.Errorf("%s: exit code %d: %s", url, a.code, a)
		}
	}
}
