// Package dialect defines what sqlstore needs from a database: see Database. The folders beside it
// implement it, one database each, in Go and SQL. It links no driver.
package dialect

import (
	"context"

	"github.com/tickslot/tickslot/internal/sqlmigrate"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// A Database executes statements.
type Database interface {
	// String is "postgres", "mysql" …
	String() string
	// Texts are its statements, by file.
	Texts() Texts
	// Bind returns the statement of a text.
	Bind(text string, p Params) Statement
	// Read executes a statement that only reads, and calls row for each row of its answer. begin is
	// called before each attempt.
	Read(ctx context.Context, s Statement, begin func(), row func(store.Row) error) error
	// Write executes statements in one transaction. The rows are those of the last.
	Write(ctx context.Context, list func() []Statement, begin func(), row func(store.Row) error) error
	// WriteAndCount executes a statement that writes, and one that asks the same connection what it
	// has done. On MySQL that is no transaction: if the network of this host fails within one, the
	// server keeps it for as long as it does not notice, hours by default, and its locks are in the
	// way of all that is marked meanwhile.
	WriteAndCount(ctx context.Context, list func() []Statement, begin func(), row func(store.Row) error) error

	// Split returns the statements of a text.
	Split(text string) []string
	// ID is a literal.
	ID(store.ID) string
	// Instant is an expression for a parameter that is in microseconds since 1970.
	Instant(param string) string
	// IsThere reports whether a row was not inserted because this index has it, and IsLater whether
	// a transaction has to be repeated because of another one.
	IsThere(err error, index string) bool
	IsLater(err error) bool
	// Explain adds to an error what to do about it.
	Explain(err error) error

	// Tables are what Migrate creates and Verify compares. The store adds Wrong and Explain.
	Tables() sqlmigrate.Tables

	// Notify and Listen do what store.Producer and store.Relay say.
	Notify(ctx context.Context) error
	Listen(ctx context.Context, woken func()) error
}

// The indexes that have a row once.
const (
	IndexOfMessages = "message_id"
	IndexOfRecords  = "PRIMARY KEY" // of the inbox
)

// Tables are what their names end with.
var Tables = []string{"", "_attempts", "_inbox", "_layout"}

// Indexes are what their names end with.
var Indexes = []string{"pending", "fresh", "topics", "retried", "dead_keys", "backoff", "failing", "requeued",
	"finished", "received"}

// Without is the part of a database that cannot wake others.
type Without struct{}

func (Without) Notify(context.Context) error         { return nil }
func (Without) Listen(context.Context, func()) error { return store.ErrNoListen }
