package pgservice_test

import (
	"context"
	"net/http"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/httpsink"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/service"
	"github.com/tickslot/tickslot/service/pgservice"
	"github.com/tickslot/tickslot/timer"
)

type Invoice struct{ Number int }

func fetchRates(context.Context) error             { return nil }
func sendInvoice(context.Context, Invoice) error   { return nil }
func sendStatements(context.Context, string) error { return nil }

// This program has a timer, durable runs, an outbox, probes, metrics and the page.
func Example() {
	run := func(ctx context.Context) error {
		pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
		if err != nil {
			return err
		}
		defer pool.Close()
		svc, err := pgservice.New(pool, service.Config{
			Environment: "production", PreStopDelay: 5 * time.Second,
			Relay: outbox.RelayConfig{Sinks: map[string]outbox.Sink{
				"invoice.created": httpsink.New("https://example.com/invoices", httpsink.Options{}),
			}},
		}, timer.Timer{Name: "rates", Schedule: schedule.Every(time.Minute), Run: fetchRates})
		if err != nil {
			return err
		}
		send := service.Handle(svc.Worker(), "invoice", sendInvoice, durable.HandlerOptions{MaxConcurrency: 3})
		service.Handle(svc.Worker(), "statements", sendStatements, durable.HandlerOptions{})
		svc.Worker().Schedule("nightly", "statements", schedule.Daily("03:00", "Europe/Berlin"),
			durable.ScheduleOptions{})

		mux := http.NewServeMux()
		mux.Handle("/", svc.Probes())
		mux.HandleFunc("POST /invoices", func(w http.ResponseWriter, r *http.Request) {
			err := svc.InTx(r.Context(), func(tx pgservice.Tx) error {
				if _, err := tx.Exec(r.Context(), `INSERT INTO invoice (number) VALUES (7)`); err != nil {
					return err
				}
				if _, err := send.Trigger(r.Context(), tx, Invoice{Number: 7}, durable.TriggerOptions{}); err != nil {
					return err
				}
				_, err := tx.Append(r.Context(), outbox.Message{ID: outbox.RandomID(), Topic: "invoice.created"})
				return err
			})
			if err != nil {
				http.Error(w, "try again", http.StatusInternalServerError)
			}
		})
		return svc.Run(ctx, tickslot.Server(&http.Server{Addr: ":8080", Handler: mux}))
	}
	_ = run // it needs a database
}
