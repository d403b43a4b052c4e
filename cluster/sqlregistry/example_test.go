package sqlregistry_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/sqlregistry"
	"github.com/tickslot/tickslot/dlock"
)

// A host writes what it holds, and any reader of the registry sees it.
func ExampleSQLite() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	db, err := sql.Open("sqlite", ":memory:") // use a file if there are several processes
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	registry := sqlregistry.SQLite(db, sqlregistry.Options{})
	if err := registry.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	_, err = registry.Write(ctx, cluster.Batch{Leases: []cluster.LeaseRecord{{
		Name: "outbox", Kind: "outbox", Holder: dlock.Holder{Host: "web-2", PID: 4711, ID: "k3x9"},
		Fence: 12, Grant: "1", ExpiresIn: 15 * time.Second,
	}}})
	if err != nil {
		log.Fatal(err)
	}
	rows, err := registry.Read(ctx, cluster.Query{})
	if err != nil {
		log.Fatal(err)
	}
	for _, l := range rows.Leases {
		fmt.Println(l.Name, "is held by", l.Holder, "and ends in the future:", l.ExpiresIn > 0)
	}
	// Output:
	// outbox is held by web-2/4711/k3x9 and ends in the future: true
}
