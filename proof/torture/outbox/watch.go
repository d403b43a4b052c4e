//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/proof/torture"
	"github.com/tickslot/tickslot/proof/torture/nemesis"
)

const (
	tableOfMessages = outbox.DefaultTableName
	tableOfAttempts = outbox.DefaultTableName + "_attempts"
)

// A watch reads the database without the library, through a connection without faults.
type watch struct {
	door    *nemesis.Door
	bounced *nemesis.Door // through PgBouncer, with a separate pool, or nil
	log     *torture.Log

	due map[[2]int64]*torture.Line // by row and attempts
}

// now returns an SQL expression for the database's time in the format of the tables.
func (w *watch) now() string {
	switch {
	case w.door.Pool != nil:
		return "clock_timestamp()"
	case w.door.File:
		return "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)"
	default:
		return "UTC_TIMESTAMP(6)"
	}
}

// run looks until ctx ends.
func (w *watch) run(ctx context.Context, all *sync.WaitGroup) {
	w.due = map[[2]int64]*torture.Line{}
	if w.bounced != nil {
		all.Go(func() {
			nemesis.Each(ctx, func(ctx context.Context) { nemesis.LookThrough(ctx, w.bounced, w.log) })
		})
	}
	all.Go(func() {
		nemesis.Each(ctx, w.look)
		for _, l := range w.due { // still there
			w.log.Write(*l)
		}
	})
}

// look reads the deliverable messages: they are due, no earlier message of their key is pending,
// and their topic's receivers do not hang.
func (w *watch) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	l := torture.Line{Kind: torture.Looked, First: nemesis.Mono()}
	seen := map[[2]int64]bool{}
	rows, err := w.door.DB.QueryContext(ctx, "SELECT m.seq, m.attempts FROM "+tableOfMessages+" AS m WHERE "+
		"m.state = 'pending' AND m.topic <> '"+stuck+"' AND m.next_attempt_at <= "+w.now()+
		" AND (m.key = '' OR NOT EXISTS (SELECT 1 FROM "+tableOfMessages+
		" AS e WHERE e.key = m.key AND e.seq < m.seq AND e.state = 'pending'))")
	if err == nil {
		for rows.Next() && err == nil {
			var k [2]int64
			err = rows.Scan(&k[0], &k[1])
			if seen[k] = true; w.due[k] == nil {
				w.due[k] = &torture.Line{Kind: torture.Due, First: nemesis.Mono(),
					Message: &torture.Message{Seq: k[0], Attempt: int(k[1])}}
			}
			w.due[k].Last = nemesis.Mono()
		}
		err = errors.Join(err, rows.Err(), rows.Close())
	}
	l.Last, l.Failed = nemesis.Mono(), err != nil
	w.log.Write(l)
	if err != nil {
		return
	}
	for k, line := range w.due {
		if !seen[k] { // it was tried
			if line.Last > line.First+int64(time.Second) { // otherwise it was soon enough
				w.log.Write(*line)
			}
			delete(w.due, k)
		}
	}
}

// leader returns the relay that delivered last, or "" if none has.
func (w *watch) leader() (place string, err error) {
	err = testkit.Poll(20*time.Second, "somebody delivers", func(ctx context.Context) error {
		var node string
		err := w.door.DB.QueryRowContext(ctx, "SELECT node FROM "+tableOfAttempts+
			" ORDER BY at DESC LIMIT 1").Scan(&node)
		place = torture.Place(node)
		return err
	})
	return place, err
}

// finished waits until all messages are dispatched or dead.
func (w *watch) finished(limit time.Duration) error {
	return testkit.Poll(limit, "all messages are dispatched or dead", func(ctx context.Context) error {
		var n int
		err := w.door.DB.QueryRowContext(ctx, "SELECT count(*) FROM "+tableOfMessages+
			" WHERE state = 'pending'").Scan(&n)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d are left", n)
		}
		return err
	})
}

// rows logs the final contents of the database.
func (w *watch) rows(ctx context.Context) error {
	var name string
	named := func(m *torture.Message) (err error) {
		seq, attempt, state := m.Seq, m.Attempt, m.State
		*m, err = parse(name)
		m.Seq, m.Attempt, m.State = seq, attempt, state
		return err
	}
	payload := "m.payload"
	if w.door.Pool != nil {
		payload = "convert_from(m.payload, 'UTF8')"
	}
	return errors.Join(
		w.each(ctx, torture.Change, "SELECT of_order, version, made_by, messages FROM "+tableOfChanges,
			func(m *torture.Message) []any { return []any{&m.Order, &m.Version, &m.By, &m.Count} }, nil),
		w.each(ctx, torture.Row, "SELECT m.seq, m.attempts, m.state, "+payload+" FROM "+tableOfMessages+" AS m",
			func(m *torture.Message) []any { return []any{&m.Seq, &m.Attempt, &m.State, &name} }, named),
		w.each(ctx, torture.Tried, "SELECT message, attempt, node, outcome FROM "+tableOfAttempts,
			func(m *torture.Message) []any { return []any{&m.Seq, &m.Attempt, &m.Node, &m.Outcome} }, nil),
		w.each(ctx, torture.Effect, "SELECT name FROM "+tableOfEffects+" ORDER BY id",
			func(*torture.Message) []any { return []any{&name} }, named),
	)
}

// each logs a line for each row.
func (w *watch) each(ctx context.Context, kind, query string, to func(*torture.Message) []any,
	more func(*torture.Message) error) error {
	rows, err := w.door.DB.QueryContext(ctx, query)
	if err != nil {
		return fmt.Errorf("%s: %w", strings.ToLower(kind), err)
	}
	defer rows.Close()
	for rows.Next() {
		var m torture.Message
		if err := rows.Scan(to(&m)...); err != nil {
			return err
		}
		if more != nil {
			if err := more(&m); err != nil {
				return err
			}
		}
		w.log.Write(torture.Line{Kind: kind, Message: &m})
	}
	return rows.Err()
}
