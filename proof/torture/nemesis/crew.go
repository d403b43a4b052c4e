//go:build linux

package nemesis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/torture"
)

// A Spec tells a process what to do.
type Spec struct {
	Role  string
	Name  string // name of this life: host-3.17
	Dir   string // directory of the logs
	Ways  []Way  // connections to the database; clients have several
	Lease time.Duration
	Table string // the table that a writer locks
}

// OpenLog opens the log of a process.
func (s Spec) OpenLog() (*torture.Log, error) { return torture.OpenLog(s.Dir, s.Name, Mono) }

// A Crew is the processes of one torture, and their database.
type Crew struct {
	CrewOptions
	Log      *torture.Log
	Database *Database
	Members  []*Member

	clients *Process
	doors   []*servertest.Proxy // of the clients

	mu     sync.Mutex
	faults map[string]int
	broken []error
}

// CrewOptions configure a crew.
type CrewOptions struct {
	Kind  string // of its database
	Dir   string // directory of the logs of all kinds
	Lease time.Duration
	Call  time.Duration // timeout of a database call
	// Table is the table that faults lock, and Rows a condition for the rows that they lock.
	Table, Rows string
	// Complete extends the spec of a process. Default: nothing.
	Complete func(Spec) any
}

// A Member is a place in the crew: one process after another behind the same proxy.
type Member struct {
	name  string // host-3
	role  string
	fleet bool
	proxy *servertest.Proxy // nil if there is no network
	way   Way

	mu    sync.Mutex // held by the fault that acts on the member
	lives int
	proc  *Process
}

// NewCrew starts a database, but no processes.
func NewCrew(o CrewOptions) (c *Crew, err error) {
	o.Dir = filepath.Join(o.Dir, o.Kind)
	if o.Complete == nil {
		o.Complete = func(s Spec) any { return s }
	}
	c = &Crew{CrewOptions: o, faults: map[string]int{}}
	// These signals would end a process that has just started and does not handle them yet.
	signal.Ignore(hangSignal, goOnSignal)
	// The directory must be new, because logs of an earlier torture would be mixed with these.
	if err := os.Mkdir(o.Dir, 0o755); err != nil {
		return nil, err
	}
	if c.Log, err = torture.OpenLog(o.Dir, "tormentor", Mono); err != nil {
		return nil, err
	}
	c.Database, err = StartDatabase(o.Kind, o.Dir)
	return c, err
}

func (c *Crew) spec(role, name string, ways ...Way) any {
	return c.Complete(Spec{Role: role, Name: name, Dir: c.Dir, Ways: ways, Lease: c.Lease, Table: c.Table})
}

// way returns a new connection to the database, through a proxy if there is a network.
func (c *Crew) way() (*servertest.Proxy, Way, error) {
	if !c.Database.HasNetwork() {
		return nil, c.Database.Direct(), nil
	}
	p, err := servertest.NewProxy(c.Database.Target())
	if err != nil {
		return nil, Way{}, err
	}
	return p, c.Database.Via(p.Addr()), nil
}

// Add starts a process. If fleet is set, the fault fleet_kill kills it together with the others.
func (c *Crew) Add(role, name string, fleet bool) (err error) {
	m := &Member{name: name, role: role, fleet: fleet}
	if m.proxy, m.way, err = c.way(); err != nil {
		return err
	}
	c.Members = append(c.Members, m)
	return c.begin(m)
}

// AddClients starts a process of the role "clients" with this many connections to the database.
func (c *Crew) AddClients(doors int) (err error) {
	var ways []Way
	for range doors {
		proxy, way, err := c.way()
		if err != nil {
			return err
		}
		if proxy != nil {
			c.doors = append(c.doors, proxy)
		}
		ways = append(ways, way)
	}
	c.clients, err = Spawn("", c.Dir, "clients", c.spec("clients", "clients", ways...))
	return err
}

// begin starts the next life of a member. The caller holds its mu.
func (c *Crew) begin(m *Member) error {
	m.lives++
	name := fmt.Sprintf("%s.%d", m.name, m.lives)
	c.Log.Write(torture.Line{Kind: torture.Born, Target: name})
	p, err := Spawn("", c.Dir, name, c.spec(m.role, name, m.way))
	if err != nil {
		return err // m.proc stays the ended one, so that ensureAlive starts another
	}
	m.proc = p
	return nil
}

func (c *Crew) logDead(m *Member) { c.Log.Write(torture.Line{Kind: torture.Dead, Target: m.proc.Name}) }

// ensureAlive starts another process if a member's has ended on its own, and returns the reason.
func (c *Crew) ensureAlive(m *Member) error {
	select {
	case <-m.proc.Done:
		err := fmt.Errorf("it died: %w", m.proc.Failure())
		c.logDead(m)
		return errors.Join(err, c.begin(m))
	default:
		return nil
	}
}

// Fail records a failure of the torture, unless err is nil.
func (c *Crew) Fail(err error) {
	if err == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = append(c.broken, err)
}

// Broken returns the failures that Fail has recorded.
func (c *Crew) Broken() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.broken...)
}

// Faults returns the number of faults of each kind.
func (c *Crew) Faults() (kinds map[string]int, all int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.faults {
		all += n
	}
	return c.faults, all
}

// Lives returns the number of processes so far.
func (c *Crew) Lives() (n int) {
	for _, m := range c.Members {
		n += m.lives
	}
	return n
}

// Torment performs a plan. Afterwards, all members are alive.
func (c *Crew) Torment(ctx context.Context, faults []Fault, length time.Duration) {
	CarryOut(ctx, faults, length, c.Do)
	for _, m := range c.Members {
		m.mu.Lock()
		c.Fail(c.ensureAlive(m))
		m.mu.Unlock()
	}
}

// KeepUp restarts PgBouncer whenever it exits, until ctx ends.
func (c *Crew) KeepUp(ctx context.Context, all *sync.WaitGroup) {
	if c.Database.Bounced() {
		all.Go(func() { c.Database.keepUp(ctx, c.bouncerEnded) })
	}
}

// bouncerEnded logs that PgBouncer exited on its own and was restarted.
func (c *Crew) bouncerEnded(from int64, err error) {
	c.Fail(err)
	c.note("bouncer_ended_by_itself", "store", from)
}

// note logs a completed fault.
func (c *Crew) note(kind, target string, from int64) {
	c.mu.Lock()
	c.faults[kind]++
	c.mu.Unlock()
	c.Log.Write(torture.Line{Kind: torture.Fault, Fault: kind, Target: target, First: from, Last: Mono()})
}

// Do performs one fault and returns when it is over.
func (c *Crew) Do(f Fault) {
	from := Mono()
	var err error
	var i int
	switch {
	case f.Target == "store":
		err = c.Database.hurt(f, c.Table, c.Rows, func(name string) any {
			return c.spec("writer", name, c.Database.Direct())
		}, func(kind string, from int64) {
			c.Log.Write(torture.Line{Kind: torture.Fault, Fault: kind, Target: torture.Commits, First: from,
				Last: Mono()})
		})
	case f.Target == "fleet":
		err = c.killFleet(f.For)
	case f.Kind == "receivers_hang":
		c.hang("receiver", f.For)
	default:
		if m := c.named(f.Target); m != nil {
			err = c.toMember(m, f)
		} else if _, err = fmt.Sscanf(f.Target, "clients-%d", &i); err == nil {
			err = Network(c.doors[i:i+1], f, c.Call, c.Lease)
		}
	}
	if err != nil {
		c.Fail(fmt.Errorf("%s of %s: %w", f.Kind, f.Target, err))
	}
	c.note(f.Kind, f.Target, from)
	if c.Kind == "sqlite" && f.Kind == "host_stop" { // it may hold the only lock
		c.Log.Write(torture.Line{Kind: torture.Fault, Fault: f.Kind, Target: "store", First: from, Last: Mono()})
	}
}

// named returns the member with that name, or nil.
func (c *Crew) named(name string) *Member {
	for _, m := range c.Members {
		if m.name == name {
			return m
		}
	}
	return nil
}

// HostFaults are the faults of a member's process.
var HostFaults = []string{"host_kill", "host_kill", "host_stop", "host_stop", "host_drain"}

// toMember performs a fault on one member.
func (c *Crew) toMember(m *Member, f Fault) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := c.ensureAlive(m); err != nil {
		return err
	}
	switch f.Kind {
	case "host_kill":
		m.proc.Kill()
		c.logDead(m)
		return c.begin(m)
	case "host_gone": // it is not replaced for a while
		m.proc.Kill()
		c.logDead(m)
		time.Sleep(f.For)
		return c.begin(m)
	case "host_stop":
		m.proc.Signal(syscall.SIGSTOP)
		time.Sleep(f.For)
		m.proc.Signal(syscall.SIGCONT)
		return nil
	case "host_drain":
		err := m.proc.End(drainTime)
		c.logDead(m)
		return errors.Join(err, c.begin(m))
	default:
		return Network([]*servertest.Proxy{m.proxy}, f, c.Call, c.Lease)
	}
}

// hang makes the processes of a role hang. Each implements this with Hanging.
func (c *Crew) hang(role string, length time.Duration) {
	var told []*Process
	for _, m := range c.Members {
		if m.role == role && m.mu.TryLock() { // otherwise another fault acts on it
			m.proc.Signal(hangSignal)
			told = append(told, m.proc)
			m.mu.Unlock()
		}
	}
	time.Sleep(length)
	for _, p := range told { // a process that has ended ignores it
		p.Signal(goOnSignal)
	}
}

const (
	hangSignal = syscall.SIGUSR1
	goOnSignal = syscall.SIGUSR2
)

// Hanging returns a function that blocks while this process should hang.
func Hanging() (wait func()) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, hangSignal, goOnSignal)
	var mu sync.Mutex
	free := make(chan struct{})
	close(free)
	go func() { // runs until the process ends
		for s := range signals {
			mu.Lock()
			select {
			case <-free:
				if s == hangSignal {
					free = make(chan struct{})
				}
			default:
				if s == goOnSignal {
					close(free)
				}
			}
			mu.Unlock()
		}
	}()
	return func() {
		mu.Lock()
		until := free
		mu.Unlock()
		<-until
	}
}

// killFleet kills the fleet at once, and starts a new one later.
func (c *Crew) killFleet(after time.Duration) error {
	var fleet []*Member
	for _, m := range c.Members {
		if m.fleet {
			m.mu.Lock()
			defer m.mu.Unlock()
			fleet = append(fleet, m)
		}
	}
	for _, m := range fleet {
		m.proc.Kill()
		c.logDead(m)
	}
	time.Sleep(after)
	var errs []error
	for _, m := range fleet {
		errs = append(errs, c.begin(m))
	}
	return errors.Join(errs...)
}

// EndClients stops the clients.
func (c *Crew) EndClients() { c.Fail(c.clients.End(drainTime)) }

// End stops the members of a role.
func (c *Crew) End(role string) {
	var all sync.WaitGroup
	for _, m := range c.Members {
		if m.role != role {
			continue
		}
		all.Go(func() {
			c.Fail(m.proc.End(drainTime))
			c.logDead(m)
		})
	}
	all.Wait()
}

// Close stops the remaining processes.
func (c *Crew) Close() {
	for _, m := range c.Members {
		if m.proc != nil {
			m.proc.Kill()
		}
		if m.proxy != nil {
			m.proxy.Close()
		}
	}
	if c.clients != nil {
		c.clients.Kill()
	}
	for _, p := range c.doors {
		p.Close()
	}
	if c.Database != nil {
		c.Database.Close()
	}
}
