package httpsink_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/httpsink"
)

// rawServer starts a server that calls answer for each request and then closes the connection.
func rawServer(t *testing.T, answer func(c net.Conn)) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				r, err := http.ReadRequest(bufio.NewReader(c))
				if err == nil {
					r.Body.Close()
					answer(c)
				}
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

// endless repeats a text until the client is gone.
func endless(c net.Conn, text string) {
	text = strings.Repeat(text, 1000)
	for {
		if _, err := fmt.Fprint(c, text); err != nil {
			return
		}
	}
}

// A nonsensical answer means that the server has neither accepted nor refused the message.
//
// Fails when a nonsensical answer loses a message, holds up a delivery for longer than its context,
// or fills the memory.
func TestNonsense(t *testing.T) {
	t.Parallel()
	says := func(text string) func(net.Conn) { return func(c net.Conn) { fmt.Fprint(c, text) } }
	const soon, never = 30 * time.Second, 100 * time.Millisecond
	for name, test := range map[string]struct {
		answer func(net.Conn)
		want   string
		most   time.Duration // when the context of the delivery ends
	}{
		"no answer":     {func(net.Conn) {}, "transient", soon},
		"no HTTP":       {says("SSH-2.0-OpenSSH\r\n"), "transient", soon},
		"half a status": {says("HTTP/1.1 2"), "transient", soon},
		"status 000":    {says("HTTP/1.1 000 What\r\n\r\n"), "transient", soon},
		"status 42":     {says("HTTP/1.1 42 What\r\n\r\n"), "transient", soon},
		"status 099":    {says("HTTP/1.1 099 What\r\n\r\n"), "transient", soon},
		"status -20":    {says("HTTP/1.1 -20 What\r\n\r\n"), "transient", soon},
		"status 101": {says("HTTP/1.1 101 Other\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"),
			"transient", soon},
		"status 600":       {says("HTTP/1.1 600 What\r\n\r\n"), "transient", soon},
		"status 999":       {says("HTTP/1.1 999 Request denied\r\n\r\n"), "transient", soon},
		"status 2000":      {says("HTTP/1.1 2000 What\r\n\r\n"), "transient", soon},
		"a false length":   {says("HTTP/1.1 500 No\r\nContent-Length: 1000\r\n\r\nshort"), "transient", soon},
		"taken, cut short": {says("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nshort"), "ok", soon},
		"a body without end": {func(c net.Conn) {
			fmt.Fprint(c, "HTTP/1.1 500 No\r\n\r\n")
			endless(c, "again ")
		}, "transient", soon},
		"taken, with a body without end": {func(c net.Conn) {
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\n\r\n")
			endless(c, "again ")
		}, "ok", soon},
		"headers without end": {func(c net.Conn) {
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\n")
			endless(c, "Again: and again\r\n")
		}, "transient", never},
		"informed without end": {func(c net.Conn) {
			endless(c, "HTTP/1.1 100 Continue\r\n\r\n")
		}, "transient", never},
		"no answer, but no end": {func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) }, "transient", never},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), test.most)
			defer cancel()
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			began := time.Now()
			err := httpsink.New(rawServer(t, test.answer), httpsink.Options{Client: client}).Deliver(ctx, message)
			if outcome(err) != test.want {
				t.Errorf("%v, want %s", err, test.want)
			}
			if err != nil && len(err.Error()) > 2000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			if test.most == soon && ctx.Err() != nil || time.Since(began) > soon {
				t.Errorf("it took %v", time.Since(began))
			}
		})
	}
}

// A server accepts a message and then sends nothing more. Fails when the message is delivered again
// because of that.
func TestTakenAndNoEnd(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	client := &http.Client{Transport: answers(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Status: "200", Body: silent(cancel), Request: r}, nil
	})}
	if err := httpsink.New("http://x", httpsink.Options{Client: client}).Deliver(ctx, message); err != nil {
		t.Error(err)
	}
}

// A silent body returns no data until the context of its request has ended.
type silent func()

func (s silent) Read([]byte) (int, error) { s(); return 0, context.Canceled }
func (s silent) Close() error             { return nil }

// Fails when a Retry-After that is invalid, or that requests years, decides when a message is tried
// again.
func TestRetryAfterNonsense(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const day = 24 * time.Hour
		for header, want := range map[string]time.Duration{ // -1 means the wait of RelayConfig.Retry
			"": -1, "-1": -1, "1.5": -1, "1e3": -1, "0x10": -1, " ": -1, "soon": -1, "1 hour": -1,
			"99999999999999999999": -1, "\x00": -1, "Sun Nov 31 00:00:00": -1, "١٢": -1,
			"0": 0, "2147483647": day, "Fri, 31 Dec 9999 23:59:59 GMT": day, "Mon, 01 Jan 0001 00:00:00 GMT": 0,
			"Thu, 01 Jan 1970 00:00:00 GMT": 0,
		} {
			client := &http.Client{Transport: answers(func(r *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: 503, Status: "503", Body: http.NoBody, Request: r,
					Header: http.Header{"Retry-After": {header, "7"}}}, nil
			})}
			err := httpsink.New("http://x", httpsink.Options{Client: client}).Deliver(t.Context(), message)
			after, ok := errors.AsType[*outbox.RetryAfterError](err)
			switch {
			case err == nil || ok != (want >= 0):
				t.Errorf("Retry-After %q: %v, %+v", header, err, after)
			case ok && after.Wait != want:
				t.Errorf("Retry-After %q: %v, want %v", header, after.Wait, want)
			}
		}
	})
}
