// Command trigger starts a run for each request, and responds with its result. While it runs, try:
// curl --data orders localhost:8080/rebuild
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os/signal"
	"syscall"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/timer"
)

var addr = "localhost:8080"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	timers, err := timer.New(timer.Config{Store: memlock.New()},
		timer.Timer{Name: "rebuild", MaxConcurrency: 4, Run: rebuild})
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Addr: addr, Handler: handler(timers)}
	go func() { log.Print(server.ListenAndServe()) }()
	defer server.Shutdown(context.Background()) // when the runs have ended
	log.Print(timers.Run(ctx))
}

func rebuild(ctx context.Context) error {
	run, _ := timer.RunFromContext(ctx)
	if len(run.Payload()) == 0 {
		return errors.New("no index is named")
	}
	run.SetResult(fmt.Sprintf("rebuilt %s for %v", run.Payload(), ctx.Value(http.LocalAddrContextKey)))
	return nil
}

func handler(timers *timer.Scheduler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		by := driver.Cause{By: r.RemoteAddr}
		if body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, timer.MaxPayloadLen)); err != nil {
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		} else if run, err := timers.Trigger(r.Context(), "rebuild",
			timer.TriggerOptions{Payload: body, By: by}); err != nil {
			http.Error(w, err.Error(), http.StatusConflict) // nothing was started
		} else if result, err := run.Wait(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError) // what rebuild returned, or its panic
		} else {
			fmt.Fprintln(w, result)
		}
	}
}
