//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/httpsink"
	"github.com/tickslot/tickslot/proof/torture"
	"github.com/tickslot/tickslot/proof/torture/nemesis"
)

// A receiver inserts a row for each message, which is the message's effect.
type receiver struct {
	door  *nemesis.Door
	inbox *outbox.Inbox
	log   *torture.Log
	hang  func() // blocks while the nemesis demands it
}

func runReceiver(spec Spec, log *torture.Log) error {
	d, err := nemesis.Open(spec.Ways[0])
	if err != nil {
		return err
	}
	defer d.Close()
	ctx, stop := nemesis.UntilTold()
	defer stop()
	listener, err := net.Listen("unix", spec.Receivers[0])
	if err != nil {
		return err
	}
	server := &http.Server{Handler: &receiver{d, outboxOf(d).Inbox(), log, nemesis.Hanging()},
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)} // it panics on purpose
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// ServeHTTP implements http.Handler.
func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	topic := request.Header.Get(httpsink.HeaderTopic)
	id, err := outbox.ParseID(request.Header.Get(httpsink.HeaderID))
	text, unread := io.ReadAll(request.Body)
	if err = errors.Join(err, unread); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if topic == doomed && rand.IntN(3) > 0 {
		http.Error(w, "it is refused", http.StatusUnprocessableEntity)
		return
	}
	if topic == stuck {
		r.hang()
	} else if topic != plain {
		misbehave(request.Context(), 4)
	}
	if topic == doomed {
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return
	}
	if err := r.receive(request.Context(), id, string(text)); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if topic == flaky { // the effect is committed, but the relay does not learn of it
		misbehave(request.Context(), 8)
	}
}

// receive applies the effect of a message, once.
func (r *receiver) receive(ctx context.Context, id outbox.ID, text string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	tx, err := r.door.Begin(ctx, rand.IntN(2) == 0)
	if err != nil {
		return err
	}
	fresh, err := r.inbox.Once(ctx, txOf(tx), "receiver", id)
	if err == nil && fresh {
		time.Sleep(rand.N(5 * time.Millisecond)) // simulated work
		_, err = tx.Exec(ctx, fmt.Sprintf("INSERT INTO %s (name) VALUES ('%s')", tableOfEffects, text))
	}
	if err != nil {
		tx.Rollback(ctx)
		return err
	}
	err = tx.Commit(ctx)
	if m, wrong := parse(text); err == nil && wrong == nil && !fresh {
		r.log.Write(torture.Line{Kind: torture.Dropped, Message: &m})
	}
	return err
}

// misbehave panics once in often calls, which closes the connection without an answer, and hangs
// once in ten times as many.
func misbehave(ctx context.Context, often int) {
	switch n := rand.IntN(10 * often); {
	case n == 0:
		<-ctx.Done()
	case n < 10:
		panic(http.ErrAbortHandler)
	}
}
