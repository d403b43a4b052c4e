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
	// Each has processes and often a Postgres of its own: with more of them at once two processors
	// are too busy to say how soon hosts agree.
	if err := flag.Set("test.parallel", "3"); err != nil {
		panic(err)
	}
	servertest.Main(m)
}

const (
	// pause is what lies between two questions: each is a connection and a call to the store.
	pause = 30 * time.Millisecond
	// slack is what an answer may take besides: a call to the store, a snapshot that others share,
	// and the next question.
	slack = storeTimeout + snapshotAge + pause
)

// slight is how late the machine may wake a sleeper without more time being allowed for it.
const slight = 10 * time.Millisecond

// A fleet is three processes.
type fleet struct {
	t       *testing.T
	ground  *ground
	late    *testkit.Lateness
	members []*process
}

// newFleet starts three members, and returns when all of them agree on who leads.
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

// A process is a member, as the test sees it.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	lines  *bufio.Scanner
	in     io.Closer
	link   *servertest.Proxy // to the store; nil: there is none
	addr   string
	holder string // as it calls itself
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
		_ = p.cmd.Process.Kill() // stopped or not
		_ = p.cmd.Wait()
		if f.t.Failed() {
			f.t.Logf("%s:\n%s", p.holder, p.stderr.String())
		}
	})
	return p
}

// awaitAddress waits until it answers.
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

// client makes a connection for each question, as an operator's first request does.
var client = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// ask is one HTTP request.
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

// agree asks each of the members once. It returns an error unless they name the same leader, which
// is one of them and marks itself, and see each other alive.
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

// right returns what is not right about an answer when these members are alive.
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

// within asks the members, at once and each over and over, until what they answer is right, and
// fails the test if that took longer than most since an instant. It returns how long it took each.
//
// More is allowed for one call to the store, the snapshot, and a machine that is late.
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

// newLeader checks that the members name one of them.
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

// end has the members end in good order.
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
