package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/outboxtest"
)

// A counted transaction counts its statements.
type counted struct {
	outbox.Tx
	n int
}

func (c *counted) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	c.n++
	return c.Tx.Exec(ctx, query, args...)
}

func many(n int) (list []outbox.Message) {
	for i := range n {
		list = append(list, outbox.Message{ID: outbox.NewID("many", 0, i), Topic: "t", Key: "k",
			Payload: []byte(fmt.Sprint(i))})
	}
	return list
}

// Fails when AppendMany needs a statement for each message, loses the order, reports wrongly which
// messages are fresh, or confuses another message with an existing one.
func TestAppendMany(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "a.db")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	box := outbox.SQLite(db, outbox.Options{})
	if err := box.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	sqlTx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer sqlTx.Rollback()
	tx := &counted{Tx: outbox.SQLTx(sqlTx)}
	list := many(1000)
	append1000 := func(inserts, old int, list []outbox.Message) {
		t.Helper()
		before := tx.n
		fresh, err := box.AppendMany(t.Context(), tx, list...)
		if err != nil || len(fresh) != len(list) {
			t.Fatal(len(fresh), err)
		}
		for i := range fresh {
			if fresh[i] != (i >= old) {
				t.Errorf("message %d is fresh: %t", i, fresh[i])
			}
		}
		if tx.n-before != inserts {
			t.Errorf("%d inserts, want %d", tx.n-before, inserts)
		}
	}
	if fresh, err := box.AppendMany(t.Context(), tx); err != nil || len(fresh) != 0 || tx.n != 0 {
		t.Error(fresh, err, tx.n)
	}
	append1000(1, 0, list[:5])
	append1000(300+3, 5, list) // the messages of the first statement, one by one
	append1000(1000, 1000, list)
	heavy := many(4)
	for i := range heavy {
		heavy[i].ID, heavy[i].Payload = outbox.RandomID(), make([]byte, 1<<20)
	}
	append1000(2, 0, heavy) // two megabytes fill a statement
	other := many(2)
	other[1].Payload = []byte("other")
	if _, err := box.AppendMany(t.Context(), tx, other...); !errors.Is(err, outbox.ErrOtherMessage) {
		t.Error(err)
	}
	topics := make([]string, 1004)
	for i := range topics {
		topics[i] = "t"
	}
	got := outboxtest.RequireAppended(t, box, outbox.SQLTx(sqlTx), topics...)
	for i, m := range got[:1000] {
		if string(m.Payload) != fmt.Sprint(i) {
			t.Fatalf("message %d is %s", i, m.Payload)
		}
	}
}

// Fails when a fault of one message is found after others were appended, or when the number of
// messages is not bounded.
func TestAppendManyChecksAllFirst(t *testing.T) {
	t.Parallel()
	box := outboxtest.New(t)
	noTopic, twice, large := many(700), many(700), many(65)
	noTopic[699].Topic, noTopic[3].Topic = "", ""
	twice[699].ID = twice[2].ID
	for i := range large {
		large[i].Payload = make([]byte, 1<<20)
	}
	outboxtest.InTx(t, box, func(tx outbox.Tx) error {
		for want, list := range map[string][]outbox.Message{"message 3,": noTopic, "message 699,": noTopic,
			"message 2 has it, too": twice, "at most 67108864": large, "at most 10000": many(10_001)} {
			fresh, err := box.AppendMany(t.Context(), tx, list...)
			if err == nil || fresh != nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v does not say %q", err, want)
			}
		}
		if _, err := box.AppendMany(t.Context(), nil, many(1)...); err == nil {
			t.Error("no transaction: no error")
		}
		outboxtest.RequireNotAppended(t, box, tx)
		fresh, err := box.AppendMany(t.Context(), tx, many(700)...)
		if len(fresh) != 700 || !fresh[699] {
			t.Error(fresh)
		}
		return err
	})
}
