package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// The processes of one machine share a file and its limit.
func ExampleSQLite() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	process := func() (*dlock.Session, func()) {
		db, err := sql.Open("sqlite", filepath.Join(dir, "locks.db"))
		if err != nil {
			log.Fatal(err)
		}
		store := sqllock.SQLite(db, sqllock.Options{})
		if err := store.Migrate(ctx); err != nil {
			log.Fatal(err)
		}
		session, err := dlock.NewSession(store, dlock.SessionOptions{})
		if err != nil {
			log.Fatal(err)
		}
		return session, func() { session.Close(ctx); db.Close() }
	}
	a, closeA := process()
	defer closeA()
	b, closeB := process()
	defer closeB()

	lease, err := a.Mutex("nightly-report").TryAcquire(ctx)
	fmt.Println("a has it:", err == nil && lease.Valid())
	_, err = b.Mutex("nightly-report").TryAcquire(ctx)
	fmt.Println("b does not:", errors.Is(err, dlock.ErrNotAcquired))
	fmt.Println("released:", lease.Release(ctx) == nil)

	// Output:
	// a has it: true
	// b does not: true
	// released: true
}

// The locks have their own *sql.DB, so that the application's queries cannot delay a heartbeat.
func ExamplePostgres() {
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(4)
	db.SetMaxIdleConns(4)
	store := sqllock.Postgres(db, sqllock.Options{Prefix: "shop:"})
	if err := store.Migrate(context.Background()); err != nil {
		log.Fatal(err) // says what is wrong with the schema or that the database does not answer
	}
}

// With interpolateParams=true, an operation is one round trip instead of two.
func ExampleMySQL() {
	db, err := sql.Open("mysql", "shop:"+os.Getenv(
		"DB_PASSWORD")+"@tcp(db.example.org:3306)/shop?interpolateParams=true&timeout=2s")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(4)
	db.SetMaxIdleConns(4)
	store := sqllock.MySQL(db, sqllock.Options{})
	if err := store.Migrate(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// To apply your own migrations, print the statements of Migrate, and verify the schema at startup.
func ExampleStore_Schema() {
	store := sqllock.Postgres(sql.OpenDB(nil), sqllock.Options{Schema: "locks"})
	statements, err := store.Schema()
	if err != nil {
		log.Fatal(err)
	}
	for _, statement := range statements {
		fmt.Println(statement + ";")
	}
	// Then, when the program starts, call store.Verify(ctx).
}

// An ordinary timer deletes rows that have been unused for Options.Retention.
func ExampleStore_Cleanup() {
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	store := sqllock.Postgres(db, sqllock.Options{Retention: 90 * 24 * time.Hour})
	timers, err := timer.New(timer.Config{Store: store},
		timer.Timer{Name: "cleanup-locks", Schedule: schedule.Every(24 * time.Hour), Run: store.Cleanup})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(timers.Run(context.Background()))
}
