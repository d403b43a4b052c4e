package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

func appendParams(m store.Message) sqlkit.Params {
	return sqlkit.Params{"id": sqlkit.ID(m.ID), "topic": sqlkit.Name(m.Topic), "key": sqlkit.Name(m.Key),
		"hash": int64(m.Hash), "payload": payload(m.Payload), "headers": headersJSON(m.Headers)}
}

// Append implements store.Producer.
func (s *Store) Append(ctx context.Context, tx store.Tx, m store.Message) (fresh bool, old store.Message, err error) {
	p := appendParams(m)
	if err = fits(m.Topic, m.Key); err != nil {
		return false, old, err
	}
	fresh, err = s.insert(ctx, tx, s.dialect.Bind(s.texts["append"], p), indexOfMessages)
	if fresh || err != nil {
		return fresh, old, err
	}
	old.ID = m.ID
	for _, name := range []string{"appended", "appended_now"} {
		text, ok := s.texts[name]
		if !ok {
			break
		}
		st := s.dialect.Bind(text, p)
		var topic, key, inHex []byte // settings of the application may change how the database formats bytes
		err = tx.QueryRow(ctx, st.Text, st.Args...).Scan(&topic, &key, &inHex)
		if err == nil {
			old.Topic, old.Key = string(topic), string(key)
			old.Payload, err = hex.AppendDecode(nil, inHex)
			return false, old, err
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return false, old, s.inTransaction(err)
		}
	}
	return false, old, fmt.Errorf("outbox: %w: another transaction has appended or deleted the message since it began",
		store.ErrRepeat)
}

// AppendAll implements store.Producer.
func (s *Store) AppendAll(ctx context.Context, tx store.Tx, list []store.Message) (bool, error) {
	if tx == nil {
		return false, errors.New("outbox: no transaction: pass one")
	}
	params := sqlkit.Params{}
	var ids, rows []string
	for i, m := range list {
		if err := fits(m.Topic, m.Key); err != nil {
			return false, err
		}
		n := strconv.Itoa(i)
		for name, value := range appendParams(m) {
			params[name+n] = value
		}
		ids = append(ids, "{id"+n+"}")
		rows = append(rows, strings.NewReplacer("#", n).Replace(s.rowOfMessage()))
	}
	ask := s.dialect.Bind(strings.Replace(s.texts["count_appended"], "{ids}", strings.Join(ids, ", "), 1), params)
	var there int64
	if err := tx.QueryRow(ctx, ask.Text, ask.Args...).Scan(&there); err != nil {
		return false, s.inTransaction(err)
	}
	if there > 0 {
		return false, nil
	}
	insert := s.dialect.Bind(strings.Replace(s.texts["append_all"], "{rows}", strings.Join(rows, ",\n"), 1), params)
	n, err := tx.Exec(ctx, insert.Text, insert.Args...)
	switch {
	case s.isThere(err, indexOfMessages), err == nil && n != int64(len(list)):
		return false, fmt.Errorf("outbox: %w: another transaction just appended one of the messages", store.ErrRepeat)
	case err != nil:
		return false, s.inTransaction(err)
	}
	return true, nil
}

// NextAppended implements store.Producer.
func (s *Store) NextAppended(ctx context.Context, tx store.Tx, after int64) (m store.Message, seq int64, ok bool,
	err error) {
	st := s.dialect.Bind(s.texts["next_appended"], sqlkit.Params{"after": after})
	var id, topic, key, inHex, headers []byte
	err = tx.QueryRow(ctx, st.Text, st.Args...).Scan(&seq, &id, &topic, &key, &inHex, &headers)
	if errors.Is(err, sql.ErrNoRows) { // matches pgx.ErrNoRows, too
		return m, 0, false, nil
	}
	if err != nil {
		return m, 0, false, s.inTransaction(err)
	}
	m.Topic, m.Key = string(topic), string(key)
	setID(&m, id)
	setHeaders(&m, headers)
	m.Payload, err = hex.AppendDecode(nil, inHex)
	return m, seq, err == nil, err
}

// Once implements store.Receiver.
func (s *Store) Once(ctx context.Context, tx store.Tx, consumer string, id store.ID) (fresh bool, err error) {
	if err := fits(consumer); err != nil {
		return false, err
	}
	st := s.dialect.Bind(s.texts["once"], sqlkit.Params{"consumer": sqlkit.Name(consumer), "id": sqlkit.ID(id)})
	return s.insert(ctx, tx, st, indexOfRecords)
}

// fits returns an error if a name is too long. Depending on sql_mode, MySQL would truncate the name
// without an error.
func fits(names ...string) error {
	for _, name := range names {
		if len(name) > store.MaxName {
			return fmt.Errorf("outbox: the name %.20q… has %d bytes, at most %d", name, len(name), store.MaxName)
		}
	}
	return nil
}

// insert executes a statement in the caller's transaction and returns false if the row already
// exists.
func (s *Store) insert(ctx context.Context, tx store.Tx, st sqlkit.Statement, index string) (bool, error) {
	if tx == nil {
		return false, errors.New("outbox: no transaction: pass one")
	}
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("outbox: %w", err)
	}
	rows, err := tx.Exec(ctx, st.Text, st.Args...)
	switch {
	case s.isThere(err, index):
		return false, nil
	case err != nil:
		return false, s.inTransaction(err)
	}
	return rows > 0, nil
}

// inTransaction explains the error of a statement in the caller's transaction.
func (s *Store) inTransaction(err error) error {
	if s.isLater(err) {
		return fmt.Errorf("outbox: %w: %w", store.ErrRepeat, err)
	}
	return s.explain(err)
}

// payload returns b, or an empty slice if b is nil, because nil would become NULL.
func payload(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

func headersJSON(h map[string]string) string {
	if len(h) == 0 {
		return "{}"
	}
	return sqlkit.InJSON(h)
}

// setHeaders sets the headers of the message from the column. If they are invalid, it sets the
// message's fault.
func setHeaders(m *store.Message, text []byte) {
	if text = bytes.TrimSpace(text); len(text) == 0 || string(text) == "{}" {
		return
	}
	if err := json.Unmarshal(text, &m.Headers); err != nil {
		m.Headers = nil
		m.Fault = fmt.Sprintf("headers %.80q are not a JSON object whose values are strings: %v", text, err)
	}
}

// setID sets the ID of the message from the column. If the length is wrong, which SQLite permits,
// it also sets the message's fault. Mark compares the ID that is set here.
func setID(m *store.Message, b []byte) {
	if copy(m.ID[:], b); len(b) != len(m.ID) {
		m.Fault = fmt.Sprintf("message_id has %d bytes, but a UUID has %d", len(b), len(m.ID))
	}
}
