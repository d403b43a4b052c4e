package durable_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite"

	"github.com/tickslot/tickslot/durable"
)

// A run is a row until it has succeeded. This example uses SQLite, which needs no installation.
func Example() {
	dir, err := os.MkdirTemp("", "durable-example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "durable.db")+"?_pragma=journal_mode(wal)")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	store := durable.SQLite(db, durable.Options{})
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second) // in a service: until SIGTERM
	defer stop()
	if err := store.Migrate(ctx); err != nil {
		fmt.Println(err)
		return
	}
	worker, err := durable.NewWorker(store, durable.Config{})
	if err != nil {
		log.Fatal(err)
	}
	worker.Handle("invoice", func(_ context.Context, run *durable.Run) error {
		fmt.Printf("attempt %d of %s: %s\n", run.Attempt, run.Key, run.Payload)
		if run.Attempt == 1 {
			return durable.RetryAfter(10*time.Millisecond, errors.New("the printer is busy"))
		}
		stop()
		return nil
	}, durable.HandlerOptions{MaxConcurrency: 3})
	if _, err := store.Trigger(ctx, nil, "invoice", []byte("order 42"), durable.TriggerOptions{Key: "42"}); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(worker.Run(ctx)) // drains when ctx ends
	// Output:
	// attempt 1 of 42: order 42
	// attempt 2 of 42: order 42
	// <nil>
}

// The unit test of a handler needs neither a worker nor a database.
func ExampleJSON() {
	type order struct{ Number int }
	handler := durable.JSON(func(ctx context.Context, o order) error {
		run, _ := durable.RunFromContext(ctx)
		fmt.Println("order", o.Number, "attempt", run.Attempt)
		return nil
	})
	run := &durable.Run{Attempt: 2, Payload: []byte(`{"Number": 42}`)}
	fmt.Println(handler(durable.ContextWithRun(context.Background(), run), run))
	// Output:
	// order 42 attempt 2
	// <nil>
}

// migrated returns a store on a new SQLite file.
func migrated() (store *durable.Store, remove func()) {
	dir, err := os.MkdirTemp("", "durable-example-")
	if err != nil {
		log.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "durable.db")+"?_pragma=journal_mode(wal)")
	if err != nil {
		log.Fatal(err)
	}
	store = durable.SQLite(db, durable.Options{})
	if err := store.Migrate(context.Background()); err != nil {
		log.Fatal(err)
	}
	return store, func() {
		db.Close()
		os.RemoveAll(dir)
	}
}

// No matter how often a program reports that the search index is stale, only one run waits to
// update it.
func ExampleStore_TriggerMany() {
	ctx := context.Background()
	store, remove := migrated() // see the example of the package
	defer remove()
	var stale []durable.TriggerManyParams
	for _, tenant := range []string{"ann", "bob", "ann"} {
		stale = append(stale, durable.TriggerManyParams{Handler: "index", Payload: []byte(tenant),
			Options: durable.TriggerOptions{Key: tenant, KeyUntil: durable.KeyUntilStarted}})
	}
	fmt.Println(store.TriggerMany(ctx, nil, stale)) // in a service: in the transaction that changes the indexed data
	// Output:
	// [{1 false} {2 false} {1 true}] <nil>
}

// A receiver that accepts two requests per 100 ms gets no more, no matter how many workers there
// are. The third run waits until the database allows the next start.
func ExampleHandlerOptions_rate() {
	store, remove := migrated() // see the example of the package
	defer remove()
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	worker, err := durable.NewWorker(store, durable.Config{MaxRuns: 1})
	if err != nil {
		log.Fatal(err)
	}
	worker.Handle("mail", func(_ context.Context, run *durable.Run) error {
		fmt.Printf("%s\n", run.Payload)
		if string(run.Payload) == "cy" {
			stop()
		}
		return nil
	}, durable.HandlerOptions{Rate: 2, Per: 100 * time.Millisecond})
	for _, to := range []string{"ann", "bob", "cy"} {
		if _, err := store.Trigger(ctx, nil, "mail", []byte(to), durable.TriggerOptions{}); err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println(worker.Run(ctx))
	runs, err := store.Runs(context.Background(), durable.RunFilter{}, 3) // newest first
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(runs[0].ClaimedAt.Sub(runs[2].ClaimedAt) >= 100*time.Millisecond)
	// Output:
	// ann
	// bob
	// cy
	// <nil>
	// true
}
