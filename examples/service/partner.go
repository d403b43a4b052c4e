package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"

	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/httpsink"
)

// A partner ships orders. It represents another company's service; here its inbox is in the same
// file. It sometimes fails, before or after it has shipped.
type partner struct {
	db     *sql.DB
	inbox  *outbox.Inbox
	url    string
	server *httptest.Server
}

func openPartner(ctx context.Context, db *sql.DB) (*partner, error) {
	box := outbox.SQLite(db, outbox.Options{})
	if err := box.Migrate(ctx); err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, tables); err != nil {
		return nil, err
	}
	p := &partner{db: db, inbox: box.Inbox()}
	p.server = httptest.NewServer(p)
	p.url = p.server.URL + "/orders"
	return p, nil
}

// ServeHTTP receives a message.
func (p *partner) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if rand.N(10) == 0 {
		http.Error(w, "the database is on fire", http.StatusServiceUnavailable)
		return
	}
	if err := p.ship(r); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if rand.N(10) == 0 { // it has shipped, but the sender does not learn of it
		http.Error(w, "the answer is lost", http.StatusBadGateway)
	}
}

// ship ships an order once, even if its message arrives several times.
func (p *partner) ship(r *http.Request) error {
	id, err := outbox.ParseID(r.Header.Get(httpsink.HeaderID))
	if err != nil {
		return err
	}
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		return err
	}
	tx, err := p.db.BeginTx(r.Context(), nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	fresh, err := p.inbox.Once(r.Context(), outbox.SQLTx(tx), "partner", id)
	if err != nil || !fresh {
		return err
	}
	if _, err := tx.ExecContext(r.Context(), "INSERT INTO shipments (order_id) VALUES (?)", o.ID); err != nil {
		return err
	}
	return tx.Commit()
}
