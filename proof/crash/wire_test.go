//go:build unix

package crash

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"time"
)

// dialer returns a dial function for pgx that shows the killer the statements in each message. A
// relay sends a transaction as a whole, and no pgx hook runs between its statements.
func (k *killer) dialer() func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &wire{Conn: conn, s: k.session(), prepared: map[string]string{}, portals: map[string]string{}}, nil
	}
}

// A wire is a connection to Postgres. Only one goroutine at a time may write to it.
type wire struct {
	net.Conn
	s        *session
	greeted  bool // the first message, which has no type, was sent
	rest     []byte
	prepared map[string]string // texts of statements, by name
	portals  map[string]string // texts of portals, by name
}

// Write implements net.Conn.
func (w *wire) Write(b []byte) (int, error) {
	data := append(w.rest, b...)
	at, executed := 0, 0
	for {
		m := w.message(data[at:])
		if m == nil {
			break
		}
		start := at
		at += len(m)
		text, executes := w.statement(m)
		if !executes {
			continue
		}
		executed++
		after := w.s.beforeThis(text, func() {
			_, _ = w.Conn.Write(data[:start]) // the server has all earlier messages
		})
		if after != nil {
			_, _ = w.Conn.Write(data[:at])
			w.answered(m[0] == 'Q', executed)
			after()
		}
	}
	w.rest = bytes.Clone(data[at:]) // the next call completes it
	_, err := w.Conn.Write(data[:at])
	return len(b), err
}

// message returns the first complete message in data, or nil.
func (w *wire) message(data []byte) []byte {
	head := 1
	if !w.greeted {
		head = 0
	}
	if len(data) < head+4 {
		return nil
	}
	size := head + int(binary.BigEndian.Uint32(data[head:]))
	if len(data) < size {
		return nil
	}
	return data[:size]
}

// statement returns the text of the statement that a message executes, if it executes one.
func (w *wire) statement(message []byte) (text string, executes bool) {
	if !w.greeted {
		w.greeted = true
		return "", false
	}
	field := func(n int) string { return string(bytes.Split(message[5:], []byte{0})[n]) }
	switch message[0] {
	case 'P': // Parse
		w.prepared[field(0)] = field(1)
	case 'B': // Bind
		w.portals[field(0)] = w.prepared[field(1)]
	case 'E': // Execute
		return w.portals[field(0)], true
	case 'Q': // Query
		return field(0), true
	}
	return "", false
}

// answered waits until the server has executed this many statements. It answers statements that
// were not sent as a Query only after a Flush.
func (w *wire) answered(query bool, statements int) {
	if !query {
		_, _ = w.Conn.Write([]byte{'H', 0, 0, 0, 4})
	}
	_ = w.SetReadDeadline(time.Now().Add(10 * time.Second))
	for statements > 0 {
		var head [5]byte
		if _, err := io.ReadFull(w.Conn, head[:]); err != nil {
			return
		}
		if _, err := io.CopyN(io.Discard, w.Conn, int64(binary.BigEndian.Uint32(head[1:]))-4); err != nil {
			return
		}
		switch head[0] {
		case 'C', 'I': // executed, or empty
			statements--
		case 'E': // the server skips the rest
			return
		}
	}
}
