package main

import (
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"time"

	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/service"
	"github.com/tickslot/tickslot/service/sqliteservice"
)

const topicPlaced = "order.placed"

// An order is a row, and also the payload of the run that writes its receipt and of the message to
// the partner.
type order struct {
	ID       int64  `json:"id"`
	Customer string `json:"customer"`
}

// A shop takes orders.
type shop struct {
	db        *sql.DB
	partner   string        // the URL that receives the messages
	customers time.Duration // how often a customer orders automatically; 0 means never
	operator  func(*http.Request) page.Access
	svc       *sqliteservice.Service
	receipt   service.Job[order]
}

const tables = `
	CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, customer TEXT NOT NULL);
	CREATE TABLE IF NOT EXISTS receipts (run INTEGER PRIMARY KEY, order_id INTEGER NOT NULL);
	CREATE TABLE IF NOT EXISTS shipments (id INTEGER PRIMARY KEY, order_id INTEGER NOT NULL)`

// place commits an order, the run that writes its receipt, and a message for the partner.
func (s *shop) place(ctx context.Context, customer string) error {
	return s.svc.InTx(ctx, func(tx sqliteservice.Tx) error {
		result, err := tx.ExecContext(ctx, "INSERT INTO orders (customer) VALUES (?)", customer)
		if err != nil {
			return err
		}
		id, err := result.LastInsertId()
		if err != nil {
			return err
		}
		o := order{id, customer}
		text, err := json.Marshal(o)
		if err != nil {
			return err
		}
		_, err = s.receipt.Trigger(ctx, tx, o, durable.TriggerOptions{})
		_, err2 := tx.Append(ctx, outbox.Message{ID: outbox.NewID(fmt.Sprintf("order-%d", id), 1, 0),
			Topic: topicPlaced, Key: customer, Payload: text})
		return errors.Join(err, err2)
	})
}

// writeReceipt is the handler of an order's run. An attempt may follow one that has done the work,
// so the run's ID is the key of the row.
func (s *shop) writeReceipt(ctx context.Context, o order) error {
	run, _ := durable.RunFromContext(ctx)
	_, err := s.db.ExecContext(ctx, "INSERT INTO receipts (run, order_id) VALUES (?, ?) ON CONFLICT DO NOTHING",
		run.ID, o.ID)
	return err
}

// writeReport is the handler of a schedule.
func (s *shop) writeReport(ctx context.Context, _ *durable.Run) error {
	var orders int
	return s.db.QueryRowContext(ctx, "SELECT count(*) FROM orders").Scan(&orders)
}

// order handles the order form.
func (s *shop) order(w http.ResponseWriter, r *http.Request) {
	customer := r.FormValue("customer")
	if customer == "" || len(customer) > 50 {
		http.Error(w, "A customer has a name of up to 50 letters.", http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
	defer cancel()
	if err := s.place(ctx, customer); err != nil {
		http.Error(w, "The order was not taken: "+err.Error(), http.StatusInternalServerError)
		return
	}
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

//go:embed shop.html
var shopHTML string

var shopPage = template.Must(template.New("shop").Parse(shopHTML))

// show serves the page with the form.
func (s *shop) show(w http.ResponseWriter, r *http.Request) {
	t, err := count(r.Context(), s.db)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = shopPage.Execute(w, t) // an error means that the client has disconnected
}
