package sqllock_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// Every operation is one round trip, or two when the driver prepares each call, for any N and
// whether slots are free or not.
//
// Fails when a procedure is called twice.
func TestRoundTripsMySQL(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedMariaDB(t)
	for params, want := range map[string]int64{oneTrip: 1, "": 2} {
		wire := server.NewCountingProxy(t)
		s := viaMySQL(wire.DSN("", "", server.NewDatabase(t))+params)(t, sqllock.Options{})
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		count := func(what string, call func() error) {
			t.Helper()
			before := wire.RoundTrips()
			if err := call(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if n := wire.RoundTrips() - before; n != want {
				t.Errorf("%s took %d round trips, want %d", what, n, want)
			}
		}
		before := wire.RoundTrips()
		if _, err := s.Enumerate(t.Context(), "", driver.MaxPage); err != nil || wire.RoundTrips()-before != 3+want {
			t.Errorf("enumerate took %d round trips, %v: want %d in a transaction of their own, which takes 3",
				wire.RoundTrips()-before, err, want)
		}
		furtherTrips(t, s, count)
		for _, n := range []int{0, 1, 5, testkit.Rounds(t, 50, 500), 10000} {
			var grants []driver.Grant
			acquire := func(token string, tick *driver.Tick) func() error {
				return func() error {
					g, err := s.TryAcquire(t.Context(), driver.Request{Name: "n" + strconv.Itoa(n), Slots: n,
						Token: token, TTL: time.Hour, Tick: tick})
					if err == nil && token != "again" {
						grants = append(grants, g)
					}
					return err
				}
			}
			refused := func(tick *driver.Tick) func() error {
				return func() error {
					if err := acquire("z", tick)(); !errors.Is(err, driver.ErrNotAcquired) {
						return fmt.Errorf("must be refused: %w", err)
					}
					return nil
				}
			}
			tick := &driver.Tick{At: time.Now(), Max: 1}
			count("acquire", acquire("t0", tick))
			count("acquire with a tick that is taken", refused(tick))
			if n <= 500 {
				for i := 1; i < n; i++ {
					count("acquire", acquire("t"+strconv.Itoa(i), nil))
				}
				count("acquire when all are held", refused(nil))
			}
			count("extend", func() error { _, err := s.Extend(t.Context(), time.Minute, grants...); return err })
			count("release", func() error { _, err := s.Release(t.Context(), grants...); return err })
			count("acquire of a slot that was released", acquire("again", nil))
			count("release by token", func() error {
				r, err := s.Release(t.Context(), driver.Grant{Name: "n" + strconv.Itoa(n), Slots: n,
					Slot:  driver.AnySlot,
					Token: "again"})
				if err == nil && r[0].Outcome != driver.GrantOK {
					err = errors.New(r[0].Outcome.String())
				}
				return err
			})
			if n == 0 { // n is 0 for a mutex
				continue
			}
			name := "n" + strconv.Itoa(n)
			update := func(c driver.Update) func() error {
				return func() error { return s.Update(t.Context(), name, c) }
			}
			count("update", update(driver.Update{Limit: &driver.LimitOverride{Cause: ann, Slots: 3}, Trigger: &ann}))
			count("acquire within a limit", acquire("limited", nil))
			limited := grants[len(grants)-1]
			count("revoke", func() error { return s.Revoke(t.Context(), name, limited.Slot, limited.Fence, ann) })
			count("extend what was revoked", func() error {
				_, err := s.Extend(t.Context(), time.Minute, limited)
				return err
			})
			count("pause", update(driver.Update{Pause: &driver.Pause{Cause: ann, For: time.Hour}}))
			count("acquire when paused", refused(nil))
		}
	}
}

// A call leaves the settings of its session unchanged, because the application may use the same
// pool. A failed call closes its connection.
//
// Fails when a procedure does not restore a setting, or when a connection is used again after a
// failed procedure.
func TestSessionIsLeftAsItWasMySQL(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedMariaDB(t)
	database := server.NewDatabase(t)
	isolation := isolationVariable(t, server)
	db := openMySQL(t, server.DSN("", "", database)+"?"+settings("innodb_lock_wait_timeout=33", "lock_wait_timeout=44",
		"autocommit=0", isolation+"='READ-COMMITTED'"))
	db.SetMaxOpenConns(1)
	s := sqllock.MySQL(db, sqllock.Options{})
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	state := func() (all string) {
		t.Helper()
		err := db.QueryRowContext(t.Context(),
			"SELECT CONCAT_WS(' ', CONNECTION_ID(), @@innodb_lock_wait_timeout, @@lock_wait_timeout, "+
				"@@autocommit, @@"+isolation+
				", @@sql_mode, @@group_concat_max_len)").Scan(&all)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	before := state()
	is := func(what string) {
		t.Helper()
		if after := state(); after != before {
			t.Errorf("after %s: %s, before: %s", what, after, before)
		}
	}
	everything(t, s)
	is("one of each")
	mutex := func(token string) error {
		_, err := s.TryAcquire(t.Context(), driver.Request{Name: "m", Token: token, TTL: time.Hour})
		return err
	}
	if err := errors.Join(mutex("a"), mutex("a")); err != nil {
		t.Error(err)
	}
	is("the same token")
	if err := mutex("b"); !errors.Is(err, driver.ErrNotAcquired) {
		t.Error(err)
	}
	is("a refusal")
	if r, err := s.Release(t.Context(), driver.Grant{Name: "m", Token: "b"}); err != nil ||
		r[0].Outcome != driver.GrantLost {
		t.Error(r, err)
	}
	is("a release of nothing")
	execOn(server, database)(t, "ALTER TABLE distributed_locks DROP COLUMN host_name, DROP COLUMN released_at")
	for what, call := range map[string]func() error{
		"acquire": func() error { return mutex("c") },
		"release": func() error { _, err := s.Release(t.Context(), driver.Grant{Name: "m", Token: "a"}); return err },
		"cleanup": func() error { return s.Cleanup(t.Context()) },
	} {
		connection, _, _ := strings.Cut(state(), " ")
		if err := call(); !errors.Is(err, driver.ErrSetup) {
			t.Error(err)
		}
		if after, _, _ := strings.Cut(state(), " "); after == connection {
			t.Errorf("after an %s that failed, its connection is used again", what)
		}
	}
}

// The slots of the largest semaphore exceed what a server aggregates in one value (1 MB; in MySQL,
// 1 KB).
func TestListOfTenThousandMySQL(t *testing.T) {
	t.Parallel()
	s := mysqlOn(t, sqltest.SharedMariaDB(t), oneTrip).migrated(t)
	host := strings.Repeat("ö", 126)
	digit := "(SELECT 0 AS d" + strings.Repeat(" UNION ALL SELECT %d", 9) + ") AS "
	digit = fmt.Sprintf(digit, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	s.exec(t, "INSERT INTO distributed_locks "+
		"(resource_name,slot,fence,acquired_at,expires_at,host_name,process_id,process_tag)"+
		" SELECT 'wide:slot:',a.d*1000+b.d*100+c.d*10+e.d,7,UTC_TIMESTAMP(6),UTC_TIMESTAMP(6)+INTERVAL 1 HOUR,"+
		"'"+host+"',1,'x'"+
		" FROM "+digit+"a CROSS JOIN "+digit+"b CROSS JOIN "+digit+"c CROSS JOIN "+digit+"e")
	held, err := s.open(t, sqllock.Options{}).List(t.Context(), "wide", driver.MaxSlots)
	if err != nil || len(held) != driver.MaxSlots || held[9999].Slot != 9999 || held[9999].Holder.Host != host {
		t.Errorf("%d leases, %v", len(held), err)
	}
}

// The longest prefix and name fit, and a longer holder is truncated.
func TestLongestNamesMySQL(t *testing.T) {
	t.Parallel()
	s := mysqlOn(t, sqltest.SharedMariaDB(t), oneTrip).migrated(t)
	store := s.open(t, sqllock.Options{Prefix: strings.Repeat("😀", driver.MaxNameLen/4)})
	for i, holder := range []driver.Holder{
		{Host: strings.Repeat("h", 300), ID: strings.Repeat("世", 300)}, {Host: "not \xff text"},
		{Host: "a\x00b\n'\"\\", ID: "\\'"},
	} {
		req := driver.Request{Name: strings.Repeat("😀", driver.MaxNameLen/4-1) + fmt.Sprintf("n%03d", i), Slots: 1,
			Token: "t", TTL: time.Hour, Holder: holder}
		g, err := store.TryAcquire(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		req.Token = "u"
		_, err = store.TryAcquire(t.Context(), req)
		no, ok := errors.AsType[*driver.NotAcquiredError](err)
		if !ok || len([]rune(no.Holder.Host)) != min(255, len([]rune(holder.Host))) ||
			len([]rune(no.Holder.ID)) != min(255, len([]rune(holder.ID))) {
			t.Errorf("%+v: %v", holder, err)
		}
		if r, err := store.Release(t.Context(), g); err != nil || r[0].Outcome != driver.GrantOK {
			t.Error(r, err)
		}
	}
}

// Errors of the server give advice and show whether the server itself works.
func TestAdviceMySQL(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedMariaDB(t)
	s := mysqlOn(t, server, oneTrip).migrated(t)
	database := strings.TrimSpace(s.exec(t, "SELECT DATABASE()"))
	user := strings.Trim(sqltest.Unique("u"), ":") + database[:12]
	s.exec(t, "CREATE USER "+user+" IDENTIFIED BY '"+servertest.Canary+"' WITH MAX_USER_CONNECTIONS 1; "+
		"GRANT ALL ON "+database+".* TO "+user)
	t.Cleanup(func() { s.exec(t, "DROP USER "+user) })
	one := openMySQL(t, server.DSN(user, "", database))
	if err := one.PingContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what, dsn, says string
		setup           bool
	}{
		{"wrong password", server.DSN(user, "wrong", database), "refuses the login", true},
		{"too many connections", server.DSN(user, "", database), "max_user_connections", false},
		{"no database", server.DSN("", "", ""), "Options.Schema", true},
		{"another database", server.DSN("", "", "not_there"), "Options.Schema", true},
	} {
		_, err := viaMySQL(c.dsn+oneTrip)(t, sqllock.Options{}).TryAcquire(t.Context(),
			driver.Request{Name: "a", Token: "t", TTL: time.Hour})
		if err == nil || !strings.Contains(err.Error(), c.says) || errors.Is(err, driver.ErrSetup) != c.setup ||
			strings.Contains(err.Error(), "wrong") {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}
