// Package dialect defines what sqlregistry needs from a database: see Database. The folders beside
// it implement it, one database each, in Go and SQL. It links no driver.
package dialect

import (
	"context"
	"errors"

	"github.com/tickslot/tickslot/internal/sqlmigrate"
)

// A Database executes the statements of a store.
type Database interface {
	// String is "postgres", "mysql" …
	String() string
	// Write writes rows, which it gets when it sends them, because their times go on. host is the
	// id of the host whose heartbeat is among them; "": none.
	Write(ctx context.Context, rows func() []Row, host string) (Answer, error)
	// Query returns the rows of read or runs.
	Query(ctx context.Context, statement string, values map[string]int64, args ...any) ([]Row, error)
	// Sweep returns how many rows it deleted.
	Sweep(ctx context.Context, values map[string]int64) (int64, error)

	// Tables are what Migrate creates and Verify compares. The store adds Wrong and Explain.
	Tables() sqlmigrate.Tables
}

// An Answer is the database's answer to a batch.
type Answer struct {
	HostKnown bool  // the host has a row
	Clock     int64 // the database's time, in µs since 1970; 0: not known
}

// ErrAnswer says that an answer of the database cannot be parsed.
var ErrAnswer = errors.New("sqlregistry: the database gave an answer that makes no sense")

// The sorts of rows.
const (
	SortHost  = "host"
	SortLease = "lease"
	SortEvent = "event"
	SortRun   = "run"
)

// A Row is a row of the table, as statements take it and give it. Instants are in µs ago, lengths
// in µs.
type Row struct {
	Sort     string `json:"sort"`
	ID       string `json:"id"`
	Name     string `json:"lock_name"`
	Node     string `json:"node_id"` // is not read
	Machine  string `json:"machine"`
	PID      int64  `json:"pid"`
	HolderID string `json:"holder_id"`
	Kind     string `json:"kind"`
	Slot     int32  `json:"slot"`
	Slots    int32  `json:"slots"`
	Fence    int64  `json:"fence"`
	Grant    string `json:"grant_id"`

	Acquired *int64 `json:"acquired,omitempty"`
	Renewed  *int64 `json:"renewed,omitempty"`
	Expires  *int64 `json:"expires,omitempty"`
	Released *int64 `json:"released,omitempty"`
	Happened *int64 `json:"happened,omitempty"`

	TTL    *int64  `json:"ttl,omitempty"`
	UpFor  *int64  `json:"up_for,omitempty"`
	Data   string  `json:"data"`
	Detail *string `json:"detail,omitempty"`
}

// Columns returns where to scan the columns of {columns}.
func (r *Row) Columns() []any {
	return []any{&r.Sort, &r.ID, &r.Name, &r.Machine, &r.PID, &r.HolderID, &r.Kind, &r.Slot, &r.Slots, &r.Fence,
		&r.Grant, &r.Acquired, &r.Renewed, &r.Expires, &r.Released, &r.Happened, &r.TTL, &r.UpFor, &r.Data, &r.Detail}
}
