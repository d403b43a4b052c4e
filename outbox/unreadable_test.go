package outbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/outbox"
)

// Another program inserts rows that are not valid messages. The table refuses them. Rows that were
// inserted before the table had these checks are dead, each with the reason. All others are
// delivered.
//
// Fails when one such row stops the relay, or keeps operators from listing messages.
func TestRowThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		open    func(testing.TB) place
		lenient string // statement that makes the table accept all rows
		strict  string // statement that undoes lenient for the next user of the connection
		id      string // the ID as SQL, for a digit
		payload string
	}{
		"Postgres": {onPostgres, "ALTER TABLE tickslot_outbox DROP CONSTRAINT tickslot_outbox_headers_check",
			"", "'%032d'::uuid", "''"},
		"MariaDB": {onMariaDB, "SET check_constraint_checks = 0", "SET check_constraint_checks = 1",
			"UNHEX('%032d')", "''"},
		"SQLite": {onSQLite, "PRAGMA ignore_check_constraints = 1", "PRAGMA ignore_check_constraints = 0",
			"x'%032d'", "x''"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := c.open(t)
			box := p.open()
			t.Cleanup(func() { box.Close() })
			if err := box.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			insert := func(first, id, headers string) error {
				tx, commit, rollback := p.begin(t)
				defer rollback()
				key := "key"
				if name == "MariaDB" {
					key = "`key`"
				}
				row := fmt.Sprintf("INSERT INTO tickslot_outbox (message_id, topic, %s, key_hash, payload, headers) "+
					"VALUES (%s, 't', 'bad', 1, %s, '%s')", key, id, c.payload, headers)
				statements := []string{row}
				if first != "" {
					statements = []string{first, row, c.strict}
				}
				for _, statement := range statements {
					if statement == "" {
						continue
					}
					if _, err := tx.Exec(t.Context(), statement); err != nil {
						return err
					}
				}
				return commit()
			}
			type row struct{ id, headers string }
			var rows, refused []row
			var ids []string
			for i, headers := range []string{"not json", "[]", `{"retries": 3}`} {
				rows = append(rows, row{fmt.Sprintf(c.id, i+1), headers})
				ids = append(ids, fmt.Sprintf("%032d", i+1))
			}
			if name == "SQLite" {
				rows = append(rows, row{"CAST('2c5ea4c0-4067-11e9-8bad-9b1deb4d3b7d' AS BLOB)", "{}"})
			}
			for _, r := range rows {
				err := insert("", r.id, r.headers)
				if err != nil {
					refused = append(refused, r)
				} else if r.headers != `{"retries": 3}` { // a CHECK constraint cannot check each value
					t.Errorf("the table accepts the ID %s and the headers %s", r.id, r.headers)
				}
			}
			for i, r := range refused {
				if i > 0 && name == "Postgres" {
					c.lenient = ""
				}
				if err := insert(c.lenient, r.id, r.headers); err != nil {
					t.Fatalf("headers %s: %v", r.headers, err)
				}
			}
			n := len(rows)
			var delivered atomic.Int64
			tx, commit, rollback := p.begin(t)
			defer rollback()
			for i := range 5 {
				m := outbox.Message{ID: outbox.RandomID(), Topic: "t", Key: fmt.Sprint("good", i)}
				if _, err := box.Append(t.Context(), tx, m); err != nil {
					t.Fatal(err)
				}
			}
			if err := commit(); err != nil {
				t.Fatal(err)
			}
			relay, err := outbox.NewRelay(box, outbox.RelayConfig{PollInterval: 20 * time.Millisecond,
				Logger: slog.New(slog.DiscardHandler), DefaultSink: outbox.SinkFunc(
					func(_ context.Context, d outbox.Delivery) error {
						if d.Key == "bad" {
							t.Errorf("message %d is delivered", d.Seq)
						}
						delivered.Add(1)
						return nil
					})})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- relay.Run(ctx) }()
			defer func() {
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}()
			testkit.Eventually(t, 10*time.Second, "the good messages are delivered", func() bool {
				return delivered.Load() == 5
			})
			var dead []outbox.Record
			testkit.Eventually(t, testkit.Patience, "the others are dead", func() bool {
				var err error
				if dead, err = box.Messages(ctx, outbox.Filter{State: outbox.StateDead}, 100); err != nil {
					t.Fatal(err)
				}
				return len(dead) == n
			})
			for _, r := range dead {
				if !strings.Contains(r.LastError, "headers") && !strings.Contains(r.LastError, "has 36 bytes") {
					t.Errorf("message %d: %q, want the reason", r.Seq, r.LastError)
				}
			}
			for _, text := range ids {
				id, err := outbox.ParseID(text)
				if err != nil {
					t.Fatal(err)
				}
				_, tried, err := box.Message(ctx, id)
				if err != nil || len(tried) != 1 || tried[0].Outcome != outbox.OutcomeUnreadable {
					t.Errorf("message %v: attempts %+v, %v, want one with OutcomeUnreadable", id, tried, err)
				}
			}
		})
	}
}
