//go:build unix

package crash

import (
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

var roles = []string{"producer", "relay", "receiver"}

// must lists words of statements that each role must execute. A matrix without them proves nothing.
var must = map[string][]string{
	"producer": {"begin", "insert into orders", "tickslot_outbox", "commit", "rollback"},
	"relay": {"set shards", "tickslot_outbox_locks", "tickslot_outbox_attempts", "update", "delete",
		"'dispatched'", "commit"},
	"receiver": {"begin", "tickslot_outbox_inbox", "insert into effects", "commit", "rollback"},
}

// maxTries is how many processes to start for a kill at one statement if they do not reach it.
// rareTries applies to rare statements.
const (
	maxTries  = 8
	rareTries = 2
)

// fewKills is the number of kills per role in the short form. Each run chooses others.
const fewKills = 2

// A matrix records the statements of each role, and the statements at which processes were killed.
type matrix struct {
	mu    sync.Mutex
	texts map[string]map[string]string // by role and statement ID
	kills []*kill
	all   bool
	left  map[string]int // kills left per role in the short form
}

// A kill ends a process before or after a statement.
type kill struct {
	role, at    string
	after, busy bool
	tries       int
	rare        bool // no role can execute it on demand
	done        bool
}

// isOpen reports whether this kill still has to be tried.
func (k *kill) isOpen() bool {
	return !k.done && (k.tries < rareTries || !k.rare && k.tries < maxTries)
}

// found records a statement that a process has executed. It is rare if only killed processes have
// executed it: then it follows a deadlock, or waits for a lock that another process held.
func (m *matrix) found(role, id, text string, rare bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.texts[role] == nil {
		m.texts[role] = map[string]string{}
	}
	if _, ok := m.texts[role][id]; ok {
		return
	}
	m.texts[role][id] = text
	m.kills = append(m.kills, &kill{role: role, at: id, rare: rare}, &kill{role: role, at: id, after: true, rare: rare})
}

// missing returns the words of must that no statement of a role contains.
func (m *matrix) missing(role string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return without(role, slices.Collect(maps.Values(m.texts[role])))
}

// survived returns the words of must at which no process of a role was killed, before or after the
// statement.
func (m *matrix) survived(role string, after bool) []string {
	var texts []string
	for _, k := range m.kills {
		if k.role == role && k.after == after && k.done {
			texts = append(texts, m.texts[role][k.at])
		}
	}
	return without(role, texts)
}

func without(role string, texts []string) (words []string) {
	all := strings.ToLower(strings.Join(texts, "\n"))
	for _, word := range must[role] {
		if !strings.Contains(all, word) {
			words = append(words, word)
		}
	}
	return words
}

// take returns an open kill, or nil.
func (m *matrix) take(role string) *kill {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.all && m.left[role] <= 0 {
		return nil
	}
	for _, i := range rand.Perm(len(m.kills)) {
		if k := m.kills[i]; k.role == role && !k.busy && k.isOpen() {
			k.busy = true
			k.tries++
			return k
		}
	}
	return nil
}

func (m *matrix) ended(k *kill, killed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k.busy, k.done = false, killed
	if killed {
		m.left[k.role]--
	}
}

// Producers, relays and receivers are killed before and after every statement that any of them
// executes, and other processes take over. No committed message is lost, no message of a rolled
// back transaction is delivered, no message takes effect twice, and each key stays in order.
//
// Fails when Append does not use the caller's transaction, when a result is written before the sink
// has returned, or when Once does not use the transaction of the effect.
func TestKilledAtEveryStatement(t *testing.T) {
	t.Parallel()
	many := testkit.Rounds(t, 1, 5)
	kinds := []string{"SQLite"}
	if many > 1 {
		kinds = append(kinds, "Postgres", "MariaDB")
	}
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) { // one at a time: each starts hundreds of processes
			m := &matrix{texts: map[string]map[string]string{}, all: many > 1, left: map[string]int{}}
			lanes := make([]*lane, many)
			var making sync.WaitGroup
			for i := range lanes {
				p := placeOf(t, kind)
				making.Go(func() {
					var err error
					if lanes[i], err = newLane(t, m, p); err != nil {
						t.Error(err)
					}
				})
			}
			if making.Wait(); t.Failed() {
				return
			}
			for _, role := range roles {
				m.left[role] = fewKills
				m.phase(t, role, lanes)
			}
			m.judge(t, lanes)
		})
	}
}

// placeOf returns a separate place.
func placeOf(t *testing.T, kind string) place {
	t.Helper()
	if kind == "SQLite" {
		return place{Kind: kind, DSN: "file:" + filepath.Join(t.TempDir(), "app.db") +
			"?_pragma=synchronous(off)&_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)"}
	}
	server := serverOf(t, kind)
	dsn := server.DSN("", "", server.NewDatabase(t))
	if kind == "MariaDB" {
		dsn += "?interpolateParams=true"
	}
	return place{Kind: kind, DSN: dsn}
}

// The servers do not wait for their disks, because the test kills processes, not servers.
var postgres, mariaDB servertest.Shared[*sqltest.Server]

func serverOf(t *testing.T, kind string) *sqltest.Server {
	t.Helper()
	if kind == "MariaDB" {
		sqltest.RequireMariaDB(t)
		return mariaDB.Get(t, func() (*sqltest.Server, error) {
			return sqltest.StartMariaDB(sqltest.Options{Settings: []string{"innodb-flush-log-at-trx-commit=0"}})
		})
	}
	sqltest.RequirePostgres(t)
	return postgres.Get(t, func() (*sqltest.Server, error) {
		return sqltest.StartPostgres(sqltest.Options{Settings: []string{"fsync=off"}})
	})
}

// phase performs all kills of a role.
func (m *matrix) phase(t *testing.T, role string, lanes []*lane) {
	for try := 0; try < maxTries && len(m.missing(role)) > 0; try++ {
		if _, err := lanes[0].run(role, "", false); err != nil {
			t.Fatal(err)
		}
	}
	for more := true; more; { // a kill may reveal statements that other processes do not execute
		more = false
		var running sync.WaitGroup
		for _, l := range lanes {
			running.Go(func() {
				for k := m.take(role); k != nil; k = m.take(role) {
					killed, err := l.run(role, k.at, k.after)
					m.ended(k, killed)
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		running.Wait()
		if t.Failed() {
			return
		}
		m.mu.Lock()
		for _, k := range m.kills {
			more = more || m.all && k.role == role && k.isOpen()
		}
		m.mu.Unlock()
	}
}

// judge compares the kills with the statements, and checks the messages.
func (m *matrix) judge(t *testing.T, lanes []*lane) {
	var all verdict
	verdicts := make([]verdict, len(lanes))
	var looking sync.WaitGroup
	for i, l := range lanes {
		looking.Go(func() {
			var err error
			if verdicts[i], err = l.verdict(); err != nil {
				t.Error(err)
			}
		})
	}
	looking.Wait()
	for _, v := range verdicts {
		all.orders += v.orders
		all.lost += v.lost
		all.doubled += v.doubled
		all.disordered += v.disordered
		all.withdrawn += v.withdrawn
	}
	if all != (verdict{orders: all.orders}) {
		t.Errorf("of %d messages %d are lost, %d effects are doubled, %d are out of order, %d are of transactions "+
			"that were rolled back", all.orders, all.lost, all.doubled, all.disordered, all.withdrawn)
	}
	for _, role := range roles {
		if words := m.missing(role); len(words) > 0 {
			t.Errorf("no %s has executed anything with %q", role, words)
		}
		done, rare, left := 0, 0, 0
		for _, k := range m.kills {
			switch {
			case k.role != role:
			case k.done:
				done++
			case k.rare:
				rare++
			case m.all:
				// A relay's combined calls depend on the results of its messages.
				left++
				t.Logf("no %s was killed (after %t) at %s", role, k.after, m.texts[role][k.at])
			}
		}
		if left > (done+left)/10 {
			t.Errorf("no %s was killed at %d of %d points, of which a tenth may be missed", role, left, done+left)
		}
		for _, after := range []bool{false, true} {
			if words := m.survived(role, after); m.all && len(words) > 0 {
				t.Errorf("no %s was killed (after %t) at a statement with %q", role, after, words)
			}
		}
		if done == 0 {
			t.Errorf("no %s was killed", role)
		}
		t.Logf("%s: %d statements, %d kills; %d and %d rare ones left out", role, len(m.texts[role]), done, left, rare)
	}
	t.Logf("%d messages: lost %d, effects doubled %d, out of order %d, of transactions rolled back %d", all.orders,
		all.lost, all.doubled, all.disordered, all.withdrawn)
}
