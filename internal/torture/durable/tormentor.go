//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/internal/servertest"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/internal/torture"
	"github.com/tickslot/tickslot/internal/torture/nemesis"
)

// patience is how long, after all faults, the runs that are left may take.
const patience = 2 * time.Minute

// A tormentor has the workers and the database of one torture.
type tormentor struct {
	kind     string
	dir      string
	timing   Timing
	log      *torture.Log
	database *database
	watch    *watch
	members  []*member // the workers
	clients  *nemesis.Process
	doors    []*servertest.Proxy // of the clients

	mu     sync.Mutex
	faults map[string]int
	broken []error
}

// A member is a worker's place in the fleet: one process after the other, behind the same proxy.
type member struct {
	number int
	proxy  *servertest.Proxy // nil: there is no network
	way    Way

	mu    sync.Mutex // held by the fault that acts on it
	lives int
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

// way returns a new way to the database, through a proxy if there is a network.
func (t *tormentor) way() (*servertest.Proxy, Way, error) {
	target := t.database.target()
	if target == "" {
		return nil, t.database.direct(), nil
	}
	p, err := servertest.NewProxy(target)
	if err != nil {
		return nil, Way{}, err
	}
	return p, t.database.via(p.Addr()), nil
}

// begin starts the next life of a member. The caller holds its mu.
func (t *tormentor) begin(m *member) error {
	m.lives++
	spec := Spec{Role: "worker", Name: fmt.Sprintf("host-%d.%d", m.number, m.lives), Dir: t.dir, Database: []Way{m.way},
		Timing: t.timing}
	t.log.Write(torture.Line{Kind: torture.Born, Target: spec.Name})
	p, err := nemesis.Spawn("", t.dir, spec.Name, spec)
	if err != nil {
		return err // m.proc stays the one that ended, so that ensureAlive starts another
	}
	m.proc = p
	return nil
}

func (t *tormentor) logDead(m *member) {
	t.log.Write(torture.Line{Kind: torture.Dead, Target: m.proc.Name})
}

// ensureAlive starts another process if a member's has ended by itself, and returns why it did.
func (t *tormentor) ensureAlive(m *member) error {
	select {
	case <-m.proc.Done:
		err := fmt.Errorf("it died: %w", m.proc.Failure())
		t.logDead(m)
		return errors.Join(err, t.begin(m))
	default:
		return nil
	}
}

// do does one fault and returns when it is over.
func (t *tormentor) do(f nemesis.Fault) {
	from := nemesis.Mono()
	var err error
	var i int
	switch {
	case f.Target == "store":
		err = t.database.hurt(f)
	case f.Target == "fleet":
		err = t.killAll(f.For)
	case f.Target[0] == 'c':
		if _, err = fmt.Sscanf(f.Target, "clients-%d", &i); err == nil {
			err = nemesis.Network(t.doors[i:i+1], f, t.timing.Call(), t.timing.Lease)
		}
	default:
		if _, err = fmt.Sscanf(f.Target, "host-%d", &i); err == nil {
			err = t.member(t.members[i], f)
		}
	}
	if err != nil {
		t.fail(fmt.Errorf("%s of %s: %w", f.Kind, f.Target, err))
	}
	t.mu.Lock()
	t.faults[f.Kind]++
	t.mu.Unlock()
	line := torture.Line{Kind: torture.Fault, Fault: f.Kind, Target: f.Target, First: from, Last: nemesis.Mono()}
	t.log.Write(line)
	if t.kind == "sqlite" && f.Kind == "host_stop" { // it may have the only lock
		line.Target = "store"
		t.log.Write(line)
	}
}

// bouncerEnded notes that the PgBouncer has ended by itself, and was started again.
func (t *tormentor) bouncerEnded(from int64, err error) {
	t.fail(err)
	const kind = "bouncer_ended_by_itself"
	t.mu.Lock()
	t.faults[kind]++
	t.mu.Unlock()
	t.log.Write(torture.Line{Kind: torture.Fault, Fault: kind, Target: "store", First: from, Last: nemesis.Mono()})
}

// member does something to one worker.
func (t *tormentor) member(m *member, f nemesis.Fault) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := t.ensureAlive(m); err != nil {
		return err
	}
	switch f.Kind {
	case "host_kill":
		m.proc.Kill()
		t.logDead(m)
		return t.begin(m)
	case "host_stop":
		m.proc.Signal(syscall.SIGSTOP)
		time.Sleep(f.For)
		m.proc.Signal(syscall.SIGCONT)
		return nil
	case "host_drain":
		err := m.proc.End(drainTime)
		t.logDead(m)
		return errors.Join(err, t.begin(m))
	default:
		return nemesis.Network([]*servertest.Proxy{m.proxy}, f, t.timing.Call(), t.timing.Lease)
	}
}

// killAll kills all workers at once, so that ticks are missed, and starts others later.
func (t *tormentor) killAll(after time.Duration) error {
	for _, m := range t.members {
		m.mu.Lock()
		defer m.mu.Unlock()
	}
	for _, m := range t.members {
		m.proc.Kill()
		t.logDead(m)
	}
	time.Sleep(after)
	var errs []error
	for _, m := range t.members {
		errs = append(errs, t.begin(m))
	}
	return errors.Join(errs...)
}

// newTormentor starts the database and all processes.
func newTormentor(kind, dir string, timing Timing) (t *tormentor, err error) {
	t = &tormentor{kind: kind, dir: filepath.Join(dir, kind), timing: timing, faults: map[string]int{}}
	if err := os.MkdirAll(t.dir, 0o755); err != nil {
		return nil, err
	}
	if t.log, err = torture.OpenLog(t.dir, "tormentor", nemesis.Mono); err != nil {
		return nil, err
	}
	if t.database, err = startDatabase(kind, t.dir); err != nil {
		return nil, err
	}
	direct, err := open(t.database.direct())
	if err != nil {
		return t, err
	}
	t.watch = &watch{door: direct, log: t.log}
	if t.database.bouncer != nil {
		if t.watch.bounced, err = open(t.database.via(t.database.target())); err != nil {
			return t, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := direct.store.Migrate(ctx); err != nil {
		return t, err
	}
	for i := range hostsOf(kind) {
		m := &member{number: i}
		if m.proxy, m.way, err = t.way(); err != nil {
			return t, err
		}
		t.members = append(t.members, m)
		if err := t.begin(m); err != nil {
			return t, err
		}
	}
	if err := t.watch.registered(); err != nil {
		return t, err
	}
	spec := Spec{Role: "clients", Name: "clients", Dir: t.dir}
	for range doors {
		proxy, way, err := t.way()
		if err != nil {
			return t, err
		}
		if proxy != nil {
			t.doors = append(t.doors, proxy)
		}
		spec.Database = append(spec.Database, way)
	}
	t.clients, err = nemesis.Spawn("", t.dir, spec.Name, spec)
	return t, err
}

// close ends what is left.
func (t *tormentor) close() {
	for _, m := range t.members {
		if m.proc != nil {
			m.proc.Kill()
		}
		if m.proxy != nil {
			m.proxy.Close()
		}
	}
	if t.clients != nil {
		t.clients.Kill()
	}
	for _, p := range t.doors {
		p.Close()
	}
	if t.watch != nil {
		t.watch.door.close()
		if t.watch.bounced != nil {
			t.watch.bounced.close()
		}
	}
	t.database.close()
}

// torment carries out the plan, and then waits until all that was triggered has ended.
func (t *tormentor) torment(ctx context.Context, faults []nemesis.Fault, length time.Duration) error {
	looking, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	t.watch.run(looking, &all)
	if t.database.bouncer != nil {
		all.Go(func() { t.database.keepUp(looking, t.bouncerEnded) })
	}
	nemesis.CarryOut(ctx, faults, length, t.do)
	for _, m := range t.members {
		m.mu.Lock()
		t.fail(t.ensureAlive(m))
		m.mu.Unlock()
	}
	t.fail(t.clients.End(drainTime))
	// From now on ticks have no runs, and are accounted for all the same.
	control := durable.NewControl(t.watch.door.store)
	for _, c := range cadences {
		err := testkit.Poll(30*time.Second, "pause "+c.name, func(ctx context.Context) error {
			return control.PauseSchedule(ctx, c.name, time.Now().Add(time.Hour), dlock.Origin{By: "torture"})
		})
		if err != nil {
			return err
		}
	}
	err := t.watch.finished(patience)
	time.Sleep(t.timing.rules().TicksWithin) // what was due before is accounted for
	ticks, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(err, t.watch.ticks(ticks))
}

// end shuts down all workers, and writes down what the database has.
func (t *tormentor) end() error {
	var all sync.WaitGroup
	for _, m := range t.members {
		all.Go(func() {
			t.fail(m.proc.End(drainTime))
			t.logDead(m)
		})
	}
	all.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return t.watch.rows(ctx)
}
