package billing_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	_ "modernc.org/sqlite"

	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/durabletest"
	billing "github.com/tickslot/tickslot/examples/testing"
)

var errBank = errors.New("the bank is closed")

// quiet configures a worker for virtual time: durabletest.WorkOff explains PollInterval.
var quiet = durable.Config{Logger: slog.New(slog.DiscardHandler), PollInterval: time.Hour}

// The test checks which run a function has triggered.
func TestChargeIsQueued(t *testing.T) {
	store := durabletest.NewStore(t)
	if err := billing.Charge(t.Context(), store, nil, billing.Order{Number: 7, Cents: 4200},
		durable.TriggerOptions{Key: "order-7"}); err != nil {
		t.Fatal(err)
	}

	run := durabletest.RequireQueued(t, store, nil, "charge")[0]
	if order := durabletest.Payload[billing.Order](t, run); order.Number != 7 || run.Key != "order-7" {
		t.Errorf("queued %+v, key %q", order, run.Key)
	}
	durabletest.RequireNotQueued(t, store, nil, "refund")
}

// To check runs triggered in a transaction, a test needs a database, here a SQLite file.
func TestChargeIsQueuedWithTheOrder(t *testing.T) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "shop.db")+"?_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	store := durable.SQLite(db, durable.Options{})
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	sqlTx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer sqlTx.Rollback()
	tx := durable.SQLTx(sqlTx)
	if err := billing.Charge(t.Context(), store, tx, billing.Order{Number: 7}, durable.TriggerOptions{}); err != nil {
		t.Fatal(err)
	}

	durabletest.RequireQueued(t, store, tx, "charge") // the transaction sees it
	durabletest.RequireNotQueued(t, store, nil)       // other sessions do not
}

// The test calls one handler once, as the third attempt of a run.
func TestChargePassesTheKey(t *testing.T) {
	var paid string
	worker, err := billing.Worker(durabletest.NewStore(t), quiet, func(_ context.Context, key string, _ int64) error {
		paid = key
		return errBank
	})
	if err != nil {
		t.Fatal(err)
	}

	result := durabletest.Call(t, worker, durable.Run{Handler: "charge", Attempt: 3, Key: "order-7",
		Payload: []byte(`{"Number": 7, "Cents": 4200}`)})
	if paid != "order-7" || result.State != durable.StateQueued || !errors.Is(result.Err, errBank) {
		t.Errorf("paid %q: %+v", paid, result)
	}
}

// The test works off everything that is due in virtual time. A run is due tomorrow, and the bank is
// then closed for two hours. The test takes a moment.
func TestChargeIsRepeatedUntilTheBankOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opens := time.Now().Add(26 * time.Hour)
		store := durabletest.NewStore(t)
		worker, err := billing.Worker(store, quiet, func(context.Context, string, int64) error {
			if time.Now().Before(opens) {
				return errBank
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := billing.Charge(t.Context(), store, nil, billing.Order{Number: 7},
			durable.TriggerOptions{RunIn: 24 * time.Hour}); err != nil {
			t.Fatal(err)
		}

		ended := durabletest.WorkOff(t, worker, 7*24*time.Hour)
		if len(ended) != 1 || ended[0].State != durable.StateSucceeded || ended[0].FinishedAt.Before(opens) {
			t.Errorf("%+v", ended)
		}
		t.Logf("paid after %d attempts", ended[0].Attempt)
	})
}
