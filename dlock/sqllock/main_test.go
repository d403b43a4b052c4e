package sqllock_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/internal/startlog"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

func TestMain(m *testing.M) {
	// These tests keep servers busy on two processors, so fewer run in parallel than elsewhere.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	servertest.Main(m, func() error { return goleak.Find() })
}

// A subject is one database with one way to connect to it, for the tests that all dialects share.
type subject struct {
	// open returns the store of another host. It is closed after the test.
	open func(t testing.TB, opts sqllock.Options) *sqllock.Store
	// exec executes statements as the owner of the database and returns their output.
	exec func(t testing.TB, statements string) string
	// table is the default table's name in statements of the dialect.
	table string
	// span is the dialect's expression for a number of microseconds to add to an instant.
	span string
	// database is the name of the database.
	database string
	// as returns a function that opens a store as another user of the database.
	as func(t testing.TB, user string) func(testing.TB, sqllock.Options) *sqllock.Store
	// grants are the grants of docs/sql.md to the user app, for this database.
	grants []string
}

// app returns the subject for the user that docs/sql.md describes, with the permissions listed
// there. The table must exist.
func (s subject) app(t testing.TB) subject {
	t.Helper()
	s.exec(t, strings.Join(s.grants, "\n"))
	s.open = s.as(t, "app")
	return s
}

// oneRightLess revokes each documented privilege of the user app in turn and expects an error that
// names the missing privilege.
func oneRightLess(t *testing.T, s subject) {
	t.Helper()
	statement := regexp.MustCompile(`^GRANT (.*) (ON .*) TO (.*);$`)
	for _, grant := range s.grants {
		parts := statement.FindStringSubmatch(grant)
		if parts == nil {
			continue // the statement revokes privileges
		}
		for right := range strings.SplitSeq(parts[1], ", ") {
			// This row gives Cleanup something to delete.
			s.exec(t, "UPDATE "+s.table+" SET acquired_at = '1980-01-01', released_at = '1980-01-01', expires_at = "+
				"'1980-01-01'")
			s.exec(t, "REVOKE "+right+" "+parts[2]+" FROM "+parts[3])
			err := all(s.as(t, "app")(t, sqllock.Options{}))
			if !errors.Is(err, driver.ErrSetup) && right != "DELETE" || err == nil ||
				!strings.Contains(err.Error(), "privilege") {
				t.Errorf("without %s %s: %v: must fail and say that a privilege is missing", right, parts[2], err)
			}
			if err != nil && strings.Contains(err.Error(), servertest.Canary) {
				t.Errorf("without %s %s: the password is told: %v", right, parts[2], err)
			}
			s.exec(t, grant)
		}
	}
}

// all calls every method of a store with a new name and returns the first error.
func all(s *sqllock.Store) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	tick := &driver.Tick{At: time.Now(), Max: 1}
	g, err := s.TryAcquire(ctx, driver.Request{Name: sqltest.Unique("all"), Slots: 2, Token: "all", TTL: time.Minute,
		Tick: tick})
	if err != nil {
		return err
	}
	if _, err := s.Extend(ctx, time.Minute, g); err != nil {
		return err
	}
	if _, err := s.Release(ctx, g); err != nil {
		return err
	}
	if _, err := s.List(ctx, g.Name, 2); err != nil {
		return err
	}
	if _, err := s.Enumerate(ctx, "", 10); err != nil {
		return err
	}
	if err := s.Update(ctx, g.Name, driver.Update{Trigger: &ann}); err != nil {
		return err
	}
	if _, err := s.Inspect(ctx, g.Name); err != nil {
		return err
	}
	if err := s.Revoke(ctx, g.Name, 0, 1, ann); !errors.Is(err, driver.ErrNotHeld) {
		return err
	}
	if err := s.Cleanup(ctx); err != nil {
		return err
	}
	return s.Verify(ctx)
}

// documented returns the grants to app from docs/sql.md, one statement each, for another schema.
func documented(t testing.TB, heading, schema string) []string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/sql.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?m)^-- " + heading + "\\n((?:GRANT .*;\\n)+)").FindSubmatch(doc)
	if block == nil {
		t.Fatalf("docs/sql.md has no grants under %q", heading)
	}
	grants := regexp.MustCompile(`\blocks\b`).ReplaceAllString(string(block[1]), schema)
	return strings.Split(strings.TrimSpace(grants), "\n")
}

// migrated returns a subject whose table exists.
func (s subject) migrated(t testing.TB) subject {
	t.Helper()
	if err := s.open(t, sqllock.Options{}).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// hosts returns an Open function, for the dlocktest suite for example. Each call opens the store of
// another host in the same namespace.
func (s subject) hosts(t testing.TB) func() driver.Store {
	prefix := sqltest.Unique("p")
	return func() driver.Store { return s.open(t, sqllock.Options{Prefix: prefix}) }
}

// stepClock changes recorded times in the database as if its clock had been stepped since.
func (s subject) stepClock(t testing.TB, by time.Duration, where string) {
	t.Helper()
	moved := "tick = tick - %[2]d, asked_at = asked_at - %[2]d"
	for _, column := range []string{"released_at", "succeeded_at", "paused_until", "resumed_at"} {
		moved += ", " + column + " = " + column + " - %[1]s"
	}
	span := fmt.Sprintf(s.span, by.Microseconds())
	s.exec(t, "UPDATE "+s.table+" SET "+fmt.Sprintf(moved, span, by.Microseconds())+where)
	leases := strings.ReplaceAll("renewed_at = renewed_at - $, expires_at = expires_at - $", "$", span)
	s.exec(t, "UPDATE "+s.table+" SET "+leases+where+" AND slot >= 0 AND released_at IS NULL")
	counted := s.exec(t, "SELECT starts FROM "+s.table+where+" AND starts IS NOT NULL AND starts <> ''")
	for _, was := range regexp.MustCompile(`(?:\d{26})+`).FindAllString(counted, -1) {
		log, err := startlog.Parse(was)
		if err != nil {
			t.Fatal(err)
		}
		for i := range log {
			log[i].End -= by.Microseconds()
		}
		s.exec(t, "UPDATE "+s.table+" SET starts = '"+log.String()+"'"+where+" AND starts = '"+was+"'")
	}
}

// suiteTTL is the TTL of leases that the conformance suite waits for. It is long enough for a busy
// machine.
const suiteTTL = 2 * time.Second
