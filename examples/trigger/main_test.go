//go:build unix

package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/timer"
)

// The program responds to a request with the result of its run, and ends on a signal.
func TestItAnswersAndEnds(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreAnyFunction("os/signal.loop"))
	defer http.DefaultClient.CloseIdleConnections()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr = free.Addr().String()
	free.Close()
	ended := make(chan struct{})
	go func() { defer close(ended); main() }()
	deadline := time.Now().Add(30 * time.Second)
	for answer := ""; answer != "200 rebuilt orders for "+addr; {
		if response, err := http.Post("http://"+addr+"/rebuild", "", strings.NewReader("orders")); err == nil {
			body, _ := io.ReadAll(response.Body)
			response.Body.Close()
			answer = response.Status[:4] + strings.TrimSpace(string(body))
		}
		if time.Now().After(deadline) {
			t.Fatalf("the last answer was %q", answer)
		}
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatal("it does not end")
	}
}

// Each way in which a request can end has its own HTTP status.
func TestAnswers(t *testing.T) {
	timers, err := timer.New(timer.Config{Store: memlock.New()},
		timer.Timer{Name: "rebuild", Run: func(ctx context.Context) error {
			if run, _ := timer.RunFromContext(ctx); string(run.Payload()) == "panic" {
				panic("a bug")
			}
			return rebuild(ctx)
		}})
	if err != nil {
		t.Fatal(err)
	}
	post := func(body string, want int, text string) {
		t.Helper()
		w := httptest.NewRecorder()
		handler(timers)(w, httptest.NewRequest(http.MethodPost, "/rebuild", bytes.NewBufferString(body)))
		if w.Code != want || !strings.Contains(w.Body.String(), text) {
			t.Errorf("%.20q: %d %s, want %d with %q", body, w.Code, w.Body, want, text)
		}
	}
	post("early", http.StatusConflict, "not_running")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- timers.Run(ctx) }()
	<-timers.Running()
	post("orders", http.StatusOK, "rebuilt orders")
	post("", http.StatusInternalServerError, "no index is named")
	post("panic", http.StatusInternalServerError, "a bug")
	post(strings.Repeat("x", timer.MaxPayloadLen+1), http.StatusRequestEntityTooLarge, "too large")
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
