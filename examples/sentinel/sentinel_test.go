//go:build unix

package main

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

const (
	screen     = 60 // lines
	standstill = 20 * time.Second
	// backWithin is the sum of down-after and the failover, the quarantine and its additional
	// second, the next tick, and a margin for a busy machine.
	backWithin = 5*time.Second + 31*time.Second + 5*time.Second + 10*time.Second
)

// Three processes of this example run on three sentinels and two Redis servers. The master is
// suspended for 20 seconds and resumed. The limits hold across the old and the new master, the
// processes resume work within failover and quarantine, and their output fits a screen.
func TestMasterStandsStill(t *testing.T) {
	testkit.Long(t) // a minute and a half
	s := redistest.NewSentinel(t, redistest.SentinelOptions{Sentinels: 3})
	program := filepath.Join(t.TempDir(), "timers")
	if out, err := exec.Command("go", "build", "-trimpath", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	query := url.Values{"master_name": {s.MasterName()}, "password": {servertest.Canary}, "addr": s.SentinelAddrs()[1:]}
	var hosts []*host
	for i := range 3 {
		h := startHost(t, fmt.Sprint("host-", i+1), program, "redis://"+s.SentinelAddrs()[0]+"/0?"+query.Encode())
		hosts = append(hosts, h)
	}
	startsAfter := func(at time.Time, timer string) bool {
		return slices.ContainsFunc(lines(hosts), func(l line) bool {
			return l.at.After(at) && l.timer == timer && l.what == "run starts" && l.valid
		})
	}
	began := time.Now()
	for _, timer := range []string{"resize-images", "send-digest"} {
		testkit.Eventually(t, time.Minute, timer+" starts", func() bool { return startsAfter(began, timer) })
	}
	if err := s.Master.Pause(); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	if err := s.FailedOver(s.Replica); err != nil {
		t.Fatal(err)
	}
	failedOver := time.Now()
	time.Sleep(time.Until(stopped.Add(standstill))) // the fault lasts this long
	if err := s.Master.Resume(); err != nil {
		t.Fatal(err)
	}
	for _, timer := range []string{"resize-images", "send-digest"} {
		testkit.Eventually(t, time.Until(stopped.Add(backWithin)), timer+" starts again",
			func() bool { return startsAfter(failedOver.Add(time.Second), timer) })
	}
	back := time.Now()
	time.Sleep(12 * time.Second) // the length of a run of resize-images
	for _, h := range hosts {
		h.end(t)
	}

	all := lines(hosts)
	mark := func(at time.Time, what string) { all = append(all, line{at: at, text: "---- " + what}) }
	mark(stopped, "the master stands still")
	mark(failedOver, "the sentinels name the other server")
	mark(stopped.Add(standstill), "the old master goes on")
	slices.SortStableFunc(all, func(a, b line) int { return a.at.Compare(b.at) })
	for _, l := range all {
		fmt.Printf("%6.1fs  %-7s %s\n", l.at.Sub(stopped).Seconds(), l.host, l.text)
	}
	over, most := check(all)
	printed := len(slices.DeleteFunc(slices.Clone(all), func(l line) bool {
		return l.at.Before(stopped) ||
			l.host == ""
	}))
	fmt.Printf("over limit: %d, most valid runs at once: %v; failed over after %.1fs, back at work after %.1fs; %d "+
		"lines since the master stood still\n",
		over, most, failedOver.Sub(stopped).Seconds(), back.Sub(stopped).Seconds(), printed)
	if over > 0 {
		t.Errorf("%d times over the limit", over)
	}
	if printed > screen {
		t.Errorf("%d lines do not fit a screen of %d", printed, screen)
	}
}

// check counts how often more runs were valid at once than the limit allows.
func check(all []line) (over int, most map[string]int) {
	limits, most := map[string]int{"resize-images": 2, "send-digest": 1}, map[string]int{}
	valid := map[string]map[string]bool{"resize-images": {}, "send-digest": {}}
	for _, l := range all {
		if l.timer == "" || valid[l.timer] == nil || !strings.HasPrefix(l.what, "run ") {
			continue
		}
		now := valid[l.timer]
		if l.valid {
			now[l.host+l.tick] = true
		} else {
			delete(now, l.host+l.tick)
		}
		if most[l.timer] = max(most[l.timer], len(now)); len(now) > limits[l.timer] {
			over++
		}
	}
	return over, most
}

// A host is one process of the example.
type host struct {
	name string
	cmd  *exec.Cmd
	out  testkit.Log
}

func startHost(t *testing.T, name, program, redisURL string) *host {
	h := &host{name: name, cmd: exec.Command(program, "-addr", "127.0.0.1:0")}
	h.cmd.Env = append(os.Environ(), "REDIS_URL="+redisURL)
	h.cmd.Stdout, h.cmd.Stderr = &h.out, &h.out
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.cmd.Process.Kill() })
	return h
}

// end stops a ready process with SIGTERM.
func (h *host) end(t *testing.T) {
	addr := regexp.MustCompile(`msg=running addr=(\S+)`).FindStringSubmatch(h.out.String())
	if addr == nil {
		t.Errorf("%s does not say where it listens", h.name)
	} else if resp, err := http.Get("http://" + addr[1] + "/readyz"); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%s: /readyz: %v, %v", h.name, resp, err)
	} else {
		resp.Body.Close()
	}
	_ = h.cmd.Process.Signal(syscall.SIGTERM)
	if err := h.cmd.Wait(); err != nil {
		t.Errorf("%s: %v", h.name, err)
	}
}

// A line is a line of a process's output.
type line struct {
	at                time.Time
	host, text        string
	what, timer, tick string
	valid             bool // whether the run is valid from then on
}

var printed = regexp.MustCompile(`(?m)^time=(\S+) level=(.*)$`)

func lines(hosts []*host) (all []line) {
	for _, h := range hosts {
		for _, found := range printed.FindAllStringSubmatch(h.out.String(), -1) {
			at, err := time.Parse(time.RFC3339Nano, found[1])
			if err != nil {
				continue
			}
			l := line{at: at, host: h.name, text: found[2]}
			for _, w := range []string{"run starts", "run goes on", "run stops", "run ends"} {
				if strings.Contains(l.text, w) {
					l.what = w
				}
			}
			field := func(name string) string {
				if f := regexp.MustCompile(`\b` + name + `=(\S+)`).FindStringSubmatch(l.text); f != nil {
					return f[1]
				}
				return ""
			}
			l.timer, l.tick, l.valid = field("timer"), field("tick"), field("valid") == "true"
			all = append(all, l)
		}
	}
	return all
}
