package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
)

// The program follows rows that are added, changed, deleted and added again. A faulty row affects
// no other. The file may be locked when the program starts.
//
// Fails when a row's change is missed, or when a fault or SQLITE_BUSY ends the program.
func TestTable(t *testing.T) {
	dsn := "file:" + filepath.Join(t.TempDir(), "timers.db") + "?_pragma=busy_timeout(5000)"
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(4)
	var told testkit.Log
	log.SetOutput(&told)
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&told, nil)))
	defer slog.SetDefault(before)
	ctx, stop := context.WithCancel(t.Context())
	other, err := db.Conn(ctx)
	if err == nil {
		_, err = other.ExecContext(ctx, "BEGIN IMMEDIATE")
	}
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(300*time.Millisecond, func() { // until then, another session is writing
		defer other.Close()
		if _, err := other.ExecContext(ctx, "ROLLBACK"); err != nil {
			t.Error(err)
		}
	})
	times := func(what string) int { return strings.Count(told.String(), what) }
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, dsn) }()
	change := func(statement string) {
		t.Helper()
		told.Reset()
		testkit.Eventually(t, 30*time.Second, statement, func() error {
			select {
			case err := <-ended:
				t.Fatal("the program has ended:", err)
			default:
			}
			_, err := db.Exec(statement)
			return err
		})
	}
	calls := func(url string) {
		t.Helper()
		testkit.Eventually(t, time.Minute, url+" is called", func() bool { return times("calling "+url) > 1 })
	}
	change(`INSERT INTO timers VALUES ('a', '* * * * * *', '', 'fast'), ('b', '* * * * * *', 'Europe/Berlin', 'slow'),
		('bad', '61 * * * *', '', 'never')`)
	calls("fast")
	calls("slow")
	if n := times("has a fault"); n != 1 {
		t.Errorf("the bad row was logged %d times", n)
	}
	change(`INSERT INTO timers (name) VALUES ('half')`)
	testkit.Eventually(t, time.Minute, "the half row is a fault", func() bool { return times("half") > 0 })
	if _, err := db.Exec(`INSERT INTO timers VALUES ('none', '* * * * * *', NULL, '')`); err == nil {
		t.Error("the table takes a NULL, which no row can hold")
	}
	change(`UPDATE timers SET url = 'slower' WHERE name = 'b'`)
	calls("slower")
	calls("fast")
	change(`DELETE FROM timers WHERE name = 'a'`)
	testkit.Eventually(t, time.Minute, "a is removed", func() bool { return times("removed=1") == 1 })
	told.Reset()
	calls("slower")
	calls("slower") // three seconds, in which the other would have been called
	if n := times("fast"); n > 1 {
		t.Errorf("what was deleted was called %d times", n)
	}
	change(`INSERT INTO timers VALUES ('a', '* * * * * *', '', 'again')`)
	calls("again")
	if times("never") > 0 {
		t.Error("the bad row ran")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	fmt.Fprintln(t.Output(), told.String())
}
