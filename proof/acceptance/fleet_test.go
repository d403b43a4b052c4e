//go:build unix

package acceptance

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/servertest"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(memberEnv); text != "" {
		var at place
		err := json.Unmarshal([]byte(text), &at)
		if err == nil {
			err = member(at)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	// Each test has processes and often its own Postgres. With more of them at once, two CPU cores
	// are too busy to measure how soon hosts agree.
	if err := flag.Set("test.parallel", "3"); err != nil {
		panic(err)
	}
	servertest.Main(m)
}

const (
	// pause is the time between two requests. Each is a connection and a store call.
	pause = 30 * time.Millisecond
	// slack is the additional time allowed for an answer: a store call, a shared snapshot, and the
	// next request.
	slack = storeTimeout + snapshotAge + pause
)

// slight is how late the machine may wake a sleeper before more time is allowed.
const slight = 10 * time.Millisecond

// A fleet is three processes.
type fleet struct {
	t       *testing.T
	ground  *ground
	late    *testkit.Lateness
	members []*process
}

// newFleet starts three members, and returns when all agree on the leader.
func newFleet(t *testing.T, g *ground) *fleet {
	t.Helper()
	f := &fleet{t: t, ground: g, late: testkit.MeasureLateness(t, slight)}
	for range 3 {
		f.members = append(f.members, f.start())
	}
	for _, p := range f.members {
		p.awaitAddress()
	}
	testkit.Eventually(t, testkit.Patience, "all agree on who leads", func() error { return f.agree(f.members) })
	return f
}

// A process is a member as seen by the test.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	lines  *bufio.Scanner
	in     io.Closer
	link   *servertest.Proxy // to the store, or nil
	addr   string
	holder string // the name it gives itself
	stderr testkit.Log
}

func (f *fleet) start() *process {
	f.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		f.t.Fatal(err)
	}
	p := &process{t: f.t, cmd: exec.Command(exe)}
	at := f.ground.at("")
	if f.ground.addr != "" {
		p.link = servertest.NewProxyFor(f.t, f.ground.addr)
		at = f.ground.at(p.link.Addr())
	}
	env, err := json.Marshal(at)
	if err != nil {
		f.t.Fatal(err)
	}
	p.cmd.Env = append(os.Environ(), memberEnv+"="+string(env))
	p.cmd.Stderr = &p.stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	p.lines = bufio.NewScanner(out)
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		f.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // works for paused processes too
		_ = p.cmd.Wait()
		if f.t.Failed() {
			f.t.Logf("%s:\n%s", p.holder, p.stderr.String())
		}
	})
	return p
}

// awaitAddress waits until the process answers.
func (p *process) awaitAddress() {
	p.t.Helper()
	late := time.AfterFunc(testkit.Patience, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	if !p.lines.Scan() {
		p.t.Fatalf("a member did not start: %v\n%s", p.lines.Err(), p.stderr.String())
	}
	p.addr = p.lines.Text()
	a, err := p.ask()
	if err != nil {
		p.t.Fatal(err)
	}
	p.holder = a.Node
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// client opens a connection for each request, like an operator's first request.
var client = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// ask sends one HTTP request.
func (p *process) ask() (a answer, err error) {
	r, err := client.Get("http://" + p.addr + "/who?kind=leader")
	if err != nil {
		return a, err
	}
	defer r.Body.Close()
	return a, json.NewDecoder(r.Body).Decode(&a)
}

// leader returns the member that leads.
func (f *fleet) leader() *process {
	f.t.Helper()
	for _, p := range f.members {
		if a, err := p.ask(); err == nil && a.Leading {
			return p
		}
	}
	f.t.Fatal("nobody leads")
	return nil
}

// without returns the other members.
func (f *fleet) without(one *process) []*process {
	return slices.DeleteFunc(slices.Clone(f.members), func(p *process) bool { return p == one })
}

// agree asks each member once. It returns an error unless they all name the same member as the
// leader, that member marks itself, and all see each other as alive.
func (f *fleet) agree(members []*process) error {
	var named []string
	for _, p := range members {
		a, err := p.ask()
		if err == nil {
			err = a.right(members)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.holder, err)
		}
		named = append(named, a.Leaders[0].Holder)
	}
	if len(slices.Compact(slices.Clone(named))) != 1 {
		return fmt.Errorf("they name %v", named)
	}
	return nil
}

// right returns what is wrong with an answer if these members are alive.
func (a answer) right(members []*process) error {
	switch {
	case a.Err != "":
		return errors.New(a.Err)
	case len(a.Leaders) != 1:
		return fmt.Errorf("it names %d leaders", len(a.Leaders))
	}
	named := a.Leaders[0]
	switch {
	case named.Own != (named.Holder == a.Node) || named.Own != a.Leading:
		return fmt.Errorf("it marks itself %v, names %s and leads %v", named.Own, named.Holder, a.Leading)
	case !slices.ContainsFunc(members, func(p *process) bool { return p.holder == named.Holder }):
		return fmt.Errorf("it names %s, which is gone", named.Holder)
	}
	for _, p := range members {
		if state := a.Hosts[p.holder]; state != cluster.HostAlive {
			return fmt.Errorf("%s is %q", p.holder, state)
		}
	}
	return nil
}

// within polls all members concurrently until their answers are right, and returns how long each
// took. It fails the test if that took longer than most after since.
//
// It allows additional time for a store call, the snapshot, and a slow machine.
func (f *fleet) within(what string, since time.Time, most time.Duration, members []*process,
	right func(p *process, a answer) error) {
	f.t.Helper()
	took, errs := make([]time.Duration, len(members)), make([]error, len(members))
	var asking sync.WaitGroup
	for i, p := range members {
		asking.Go(func() {
			for again := time.Tick(pause); ; <-again {
				a, err := p.ask()
				if err == nil {
					err = right(p, a)
				}
				if took[i] = time.Since(since); err == nil {
					return
				}
				if took[i] > most+testkit.Patience {
					errs[i] = fmt.Errorf("%s: not within %v: %s: %w", p.holder, took[i], what, err)
					return
				}
			}
		})
	}
	asking.Wait()
	if err := errors.Join(errs...); err != nil {
		f.t.Fatal(err)
	}
	longest := slices.Max(took).Round(time.Millisecond)
	allowed := most + slack + f.late.Since(since)
	f.t.Logf("%s, %s: after %d ms, allowed %d", f.ground.name, what, longest.Milliseconds(), most.Milliseconds())
	if longest > allowed {
		f.t.Errorf("%s, %s: after %v, want at most %v", f.ground.name, what, longest, allowed)
	}
}

// newLeader checks that the members name one of themselves.
func (f *fleet) newLeader(since time.Time, most time.Duration, members []*process) {
	f.t.Helper()
	f.within("each names the new leader", since, most, members, func(_ *process, a answer) error {
		return a.right(members)
	})
	testkit.Eventually(f.t, testkit.Patience, "they agree", func() error { return f.agree(members) })
}

// sees checks that the members see a host in a state.
func (f *fleet) sees(state cluster.HostState, host *process, since time.Time, most time.Duration,
	members []*process) {
	f.t.Helper()
	f.within(fmt.Sprintf("each sees it %s", state), since, most, members, func(_ *process, a answer) error {
		if now := a.Hosts[host.holder]; now != state {
			return fmt.Errorf("it is %q", now)
		}
		return nil
	})
}

// end stops the members cleanly.
func (f *fleet) end(members []*process) {
	f.t.Helper()
	for _, p := range members {
		p.in.Close()
	}
	for _, p := range members {
		kill := time.AfterFunc(testkit.Patience, func() { _ = p.cmd.Process.Kill() })
		if err := p.cmd.Wait(); err != nil {
			f.t.Errorf("%s: %v", p.holder, err)
		}
		kill.Stop()
	}
}
