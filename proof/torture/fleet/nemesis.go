//go:build linux && amd64

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/torture"
	"github.com/tickslot/tickslot/proof/torture/nemesis"
)

const (
	// onTheWay is how long a killed host's last requests may take to reach the store and be
	// executed.
	onTheWay = 250 * time.Millisecond
	// drainTime is how long a host may take to stop. Its handlers may ignore everything for
	// MaxRunTime plus a TTL.
	drainTime = 20 * time.Second
)

// A tormentor has the hosts and the store of one torture.
type tormentor struct {
	kind     string
	dir      string
	other    string // another build of this program for every second host, or ""
	seed     uint64
	store    store
	timing   Timing
	log      *torture.Log
	inspect  *door
	registry *registryDoor
	members  []*member // the hosts
	clients  *nemesis.Process
	doors    [][]*servertest.Proxy // of the clients

	clocks sync.Mutex    // held while processes are started or clocks are set
	ahead  time.Duration // how far all clocks are ahead

	checks sync.WaitGroup
	hurt   sync.RWMutex // held for reading while the store is well

	mu     sync.Mutex
	faults map[string]int
	late   int      // slots of a killed host that were not free in time
	blind  []string // hosts that did not see all others at the end
	broken []error
	lastly int64 // when the last fault of the store ended
	// When a host's clock was last set back: its claims for future ticks keep others from claiming
	// for a while.
	jumped time.Time
}

// A member is a host's place in the fleet: one process after another behind the same proxies.
type member struct {
	number  int
	proxies []*servertest.Proxy
	via     []string
	// The registry has separate proxies, because it has its own connections.
	toRegistry  []*servertest.Proxy
	viaRegistry []string

	mu    sync.Mutex // held by the fault that acts on the member
	lives int
	small bool
	proc  *nemesis.Process
}

func (t *tormentor) fail(err error) {
	if err == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.broken = append(t.broken, err)
}

func (t *tormentor) proxies() (all []*servertest.Proxy, via []string, err error) {
	for _, target := range t.store.targets() {
		p, err := servertest.NewProxy(target)
		if err != nil {
			return nil, nil, err
		}
		all, via = append(all, p), append(via, p.Addr())
	}
	return all, via, nil
}

// begin starts the next life of a member. The caller holds its mu.
func (t *tormentor) begin(m *member) error {
	m.lives++
	// Names on a Cluster are on different nodes, and another version may not know the limit.
	shares := t.kind != "cluster" && t.other == ""
	spec := Spec{Role: "host", Name: fmt.Sprintf("host-%d.%d", m.number, m.lives), Dir: t.dir, Seed: t.seed,
		Store: []StoreSpec{t.store.spec(m.via)}, Timing: t.timing, Timers: timers(t.timing, m.small, shares),
		Roles: roles()}
	registry := t.store.spec(m.viaRegistry)
	spec.Registry = &registry
	t.log.Write(torture.Line{Kind: torture.Born, Target: spec.Name, Timers: spec.Timers, Roles: spec.Roles})
	program := ""
	if m.number%2 == 1 {
		program = t.other
	}
	t.clocks.Lock()
	defer t.clocks.Unlock()
	spec.Ahead = t.ahead
	p, err := nemesis.Spawn(program, t.dir, spec.Name, spec)
	if err != nil {
		return err // m.proc stays the ended one, so that ensureAlive starts another
	}
	m.proc = p
	return nil
}

func (t *tormentor) logDead(m *member) {
	t.log.Write(torture.Line{Kind: torture.Dead, Target: m.proc.Name})
}

// do performs one fault and returns when it is over.
func (t *tormentor) do(f nemesis.Fault) {
	from := nemesis.Mono()
	var err error
	switch {
	case f.Target == "store":
		t.hurt.Lock()
		err = t.store.hurt(f, func(kind string, from int64) {
			t.log.Write(torture.Line{Kind: torture.Fault, Fault: kind, Target: "lease", First: from,
				Last: nemesis.Mono()})
		})
		t.hurt.Unlock()
		t.mu.Lock()
		t.lastly = nemesis.Mono()
		t.mu.Unlock()
	case f.Target == "registry":
		err = t.hurtRegistry(f)
	case f.Target == "fleet":
		err = t.changeLimit()
	case f.Target == "clocks":
		err = t.stepClocks(f.For)
	case f.Target[:2] == "cl":
		var i int
		_, err = fmt.Sscanf(f.Target, "clients-%d", &i)
		if err == nil {
			err = t.network(t.doors[i], f)
		}
	default:
		var i int
		_, err = fmt.Sscanf(f.Target, "host-%d", &i)
		if err == nil {
			err = t.member(t.members[i], f)
		}
	}
	if err != nil {
		t.fail(fmt.Errorf("%s of %s: %w", f.Kind, f.Target, err))
	}
	t.mu.Lock()
	t.faults[f.Kind]++
	if f.Kind == "wall_clock_jump" {
		t.jumped = time.Now()
	}
	t.mu.Unlock()
	t.log.Write(torture.Line{Kind: torture.Fault, Fault: "done:" + f.Kind, Target: f.Target, First: from,
		Last: nemesis.Mono()})
}

// member performs a fault on one host.
func (t *tormentor) member(m *member, f nemesis.Fault) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := t.ensureAlive(m); err != nil {
		return err
	}
	switch f.Kind {
	case "host_kill":
		m.proc.Kill()
		killed := time.Now()
		t.logDead(m)
		holder := m.proc.Name
		t.checks.Go(func() { t.freed(holder, killed) })
		return t.begin(m)
	case "host_stop":
		m.proc.Signal(syscall.SIGSTOP)
		time.Sleep(f.For)
		m.proc.Signal(syscall.SIGCONT)
		return nil
	case "host_drain":
		return t.restart(m)
	case "wall_clock_jump": // ahead, and back soon; the other way round every second time
		by := f.For
		if f.Pick%2 == 0 {
			by = -by
		}
		m.proc.Tell("jump %v", by)
		time.Sleep(2 * t.timing.TTL)
		m.proc.Tell("jump %v", -by)
		return nil
	case "handler_panic":
		m.proc.Tell("panic")
		return nil
	case "handler_hang":
		m.proc.Tell("hang")
		return nil
	case "handler_ignore":
		m.proc.Tell("ignore")
		return nil
	case "pool_exhausted":
		m.proc.Tell("exhaust %v", f.For)
		time.Sleep(f.For)
		return nil
	default:
		return t.network(m.proxies, f)
	}
}

// ensureAlive starts another process if a member's has ended on its own, and returns the reason.
func (t *tormentor) ensureAlive(m *member) error {
	select {
	case <-m.proc.Done:
		err := m.proc.Failure()
		if err = unlessSetup(err); err != nil {
			err = fmt.Errorf("it died: %w", err)
		}
		t.logDead(m)
		return errors.Join(err, t.begin(m))
	default:
		return nil
	}
}

func (t *tormentor) restart(m *member) error {
	err := unlessSetup(m.proc.End(drainTime))
	t.logDead(m)
	return errors.Join(err, t.begin(m))
}

// unlessSetup returns the error, or nil if the host found the store set up wrongly at its start.
// Then timers must end at once and the host is restarted; a role returns that error at the end.
func unlessSetup(err error) error {
	if err != nil && (strings.Contains(err.Error(), "nothing was started: the store") ||
		strings.Contains(err.Error(), "leader: role") && strings.Contains(err.Error(), "is not set up right")) {
		return nil
	}
	return err
}

// changeLimit restarts all hosts with the other limits, one at a time.
func (t *tormentor) changeLimit() error {
	var errs []error
	for _, m := range t.members {
		m.mu.Lock()
		m.small = !m.small
		errs = append(errs, t.ensureAlive(m), t.restart(m))
		m.mu.Unlock()
	}
	return errors.Join(errs...)
}

func (t *tormentor) network(proxies []*servertest.Proxy, f nemesis.Fault) error {
	return nemesis.Network(proxies, f, t.timing.StoreTimeout, t.timing.TTL)
}

// freed checks that the slots of a killed host are free one TTL later. If the store had a fault
// meanwhile, it may have received the host's requests later.
func (t *tormentor) freed(holder string, killed time.Time) {
	since := nemesis.Mono()
	time.Sleep(time.Until(killed.Add(t.timing.TTL + onTheWay)))
	if !t.hurt.TryRLock() {
		return
	}
	defer t.hurt.RUnlock()
	t.mu.Lock()
	hurt := t.lastly >= since-int64(time.Second)
	t.mu.Unlock()
	if hurt {
		return
	}
	for _, tl := range timers(t.timing, false, false) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		list, err := t.inspect.lock.List(ctx, "timer:"+tl.Name, tl.Limit)
		cancel()
		if err != nil {
			return
		}
		for _, held := range list {
			if held.Holder.Host == holder {
				t.mu.Lock()
				t.late++
				t.mu.Unlock()
				fmt.Fprintf(os.Stderr, "%s: slot %d still held by %s, %v after it was killed\n", tl.Name, held.Slot,
					held.Holder, time.Since(killed))
			}
		}
	}
}

// migrateOther lets the other build of this program create what it needs in addition to ours.
func (t *tormentor) migrateOther() error {
	p, err := nemesis.Spawn(t.other, t.dir, "other", Spec{Role: "migrate", Name: "other", Dir: t.dir,
		Store: []StoreSpec{t.store.spec(nil)}, Timing: t.timing})
	if err != nil {
		return err
	}
	<-p.Done
	return p.Failure()
}

// newTormentor starts the store and all processes.
func newTormentor(kind, dir, other string, seed uint64, hosts, doors int, rates bool) (t *tormentor, err error) {
	t = &tormentor{kind: kind, dir: filepath.Join(dir, kind), other: other, seed: seed, faults: map[string]int{}}
	if err := os.MkdirAll(t.dir, 0o755); err != nil {
		return nil, err
	}
	if t.log, err = torture.OpenLog(t.dir, "tormentor", nemesis.Mono); err != nil {
		return nil, err
	}
	if t.store, err = startStore(kind, t.dir); err != nil {
		return nil, err
	}
	t.timing = t.store.timing()
	if rates {
		t.timing.Period *= seldom
	}
	if t.inspect, err = open(t.store.spec(nil), t.timing); err != nil {
		return t, err
	}
	if _, needs := t.inspect.lock.(*sqllock.Store); needs && other != "" {
		if err := t.migrateOther(); err != nil {
			return t, err
		}
	}
	if t.registry, err = openRegistry(t.store.spec(nil)); err != nil {
		return t, err
	}
	if err := testkit.Poll(30*time.Second, "make the registry", t.registry.mend); err != nil {
		return t, err
	}
	spec := Spec{Role: "clients", Name: "clients", Dir: t.dir, Seed: seed, Timing: t.timing}
	for range doors {
		proxies, via, err := t.proxies()
		if err != nil {
			return t, err
		}
		t.doors = append(t.doors, proxies)
		spec.Store = append(spec.Store, t.store.spec(via))
	}
	if t.clients, err = nemesis.Spawn("", t.dir, spec.Name, spec); err != nil {
		return t, err
	}
	for i := range hosts {
		m := &member{number: i}
		if m.proxies, m.via, err = t.proxies(); err != nil {
			return t, err
		}
		if m.toRegistry, m.viaRegistry, err = t.proxies(); err != nil {
			return t, err
		}
		t.members = append(t.members, m)
		if err := t.begin(m); err != nil {
			return t, err
		}
	}
	return t, nil
}

// close stops the remaining processes.
func (t *tormentor) close() {
	for _, m := range t.members {
		if m.proc != nil {
			m.proc.Kill()
		}
		for _, p := range slices.Concat(m.proxies, m.toRegistry) {
			p.Close()
		}
	}
	if t.clients != nil {
		t.clients.Kill()
	}
	for _, d := range t.doors {
		for _, p := range d {
			p.Close()
		}
	}
	if t.inspect != nil {
		t.inspect.close()
	}
	if t.registry != nil {
		t.registry.close()
	}
	if t.store != nil {
		t.store.close()
	}
}

// torment performs the plan. Then it pauses until all timers must run again. From then on, it
// disturbs only the registry. It returns the instant from which all timers must run, and the end.
func (t *tormentor) torment(ctx context.Context, faults []nemesis.Fault,
	length, rest time.Duration) (settled, until int64) {
	nemesis.CarryOut(ctx, faults, length, t.do)
	t.checks.Wait()
	for _, m := range t.members {
		m.mu.Lock()
		t.fail(t.ensureAlive(m))
		m.mu.Unlock()
	}
	time.Sleep(max(t.timing.settling(), time.Until(t.jumped.Add(driver.MaxTickAhead+time.Second))))
	settled = nemesis.Mono()
	time.Sleep(rest)
	t.calm(ctx)
	until = nemesis.Mono()
	t.lookRegistered()
	return settled, until
}

// end stops all processes cleanly.
func (t *tormentor) end() {
	var all sync.WaitGroup
	for _, m := range t.members {
		all.Go(func() {
			t.fail(unlessSetup(m.proc.End(drainTime)))
			t.logDead(m)
		})
	}
	all.Go(func() { t.fail(t.clients.End(drainTime)) })
	all.Wait()
}
