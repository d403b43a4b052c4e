//go:build unix

package crash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/servertest"
)

// A gate is a proxy between a relay and a receiver.
type gate struct {
	*app
	mu   sync.Mutex
	shut chan struct{} // closed when the gate opens; nil: the gate is open
	came int           // number of messages
	held int           // number of messages that wait
}

// ServeHTTP forwards a request when the gate is open.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	g.mu.Lock()
	shut := g.shut
	g.came++
	if shut != nil {
		g.held++
	}
	g.mu.Unlock()
	if shut != nil {
		<-shut // whether or not the relay still waits for the answer
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	g.app.ServeHTTP(w, r)
}

// close forwards the messages that wait, and holds later ones.
func (g *gate) close() { g.set(make(chan struct{})) }

// open forwards all messages.
func (g *gate) open() { g.set(nil) }

func (g *gate) set(shut chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.held = 0
	}
	g.shut = shut
}

func (g *gate) counts() (came, held int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.came, g.held
}

// The network of a leading relay drops everything. The relay continues its current deliveries,
// while another relay leads and delivers the same messages and later ones. When the network is
// back, the first relay also writes its results. No effect is repeated, no message is lost, and
// each key stays in order.
//
// Fails when Once reports a message as fresh that its consumer has already had.
func TestTwoRelaysAfterABlackHole(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	for _, kind := range []string{"Postgres", "MariaDB"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			twoRelays(t, kind)
		})
	}
}

func twoRelays(t *testing.T, kind string) {
	server := serverOf(t, kind)
	l, err := newLane(t, &matrix{}, placeOf(t, kind))
	if err != nil {
		t.Fatal(err)
	}
	proxy := servertest.NewProxyFor(t, server.Addr())
	cut, err := place{Kind: kind, DSN: strings.Replace(l.app.DSN, server.Addr(), proxy.Addr(), 1)}.open(&killer{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cut.close)
	g := &gate{app: l.app}
	receiver := httptest.NewServer(g)
	t.Cleanup(receiver.Close)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	// The relay reads all of them at once. One message of each key is being delivered when its
	// network is cut.
	must(l.order(32))
	g.close()
	stopOld := running(t, cut, receiver.URL)
	testkit.Eventually(t, testkit.Patience, "a message of each key is under way", func() bool {
		came, _ := g.counts()
		return came == keys
	})
	stopNew := running(t, l.app, l.receiver.URL)
	t.Cleanup(g.open) // before the relays stop
	proxy.BlackHole(true)
	// The receiver gets these. The relay continues with later ones, which wait at the gate.
	g.close()
	testkit.Eventually(t, testkit.Patience, "it goes on with deliveries", func() bool {
		came, _ := g.counts()
		return came == 2*keys
	})
	testkit.Eventually(t, testkit.Patience, "the other relay has delivered everything", l.app.settled)
	came, held := g.counts()
	if held != keys {
		t.Errorf("%d messages wait at the gate, want %d", held, keys)
	}
	g.open()
	must(l.order(12))
	testkit.Eventually(t, testkit.Patience, "later messages are delivered", l.app.settled)
	proxy.BlackHole(false)
	must(l.order(12))
	must(errors.Join(stopNew(), stopOld()))
	v, err := l.verdict()
	if err != nil || v != (verdict{orders: v.orders}) {
		t.Errorf("%+v, %v", v, err)
	}
	t.Logf("%d messages, %d of them delivered by two relays: lost %d, effects doubled %d, out of order %d", v.orders,
		came, v.lost, v.doubled, v.disordered)
}

// running runs a relay until stop is called or the test ends.
func running(t *testing.T, a *app, url string) (stop func() error) {
	t.Helper()
	relay, err := a.relay(url, 1)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		if err := relay.Run(ctx); err != nil {
			ended <- fmt.Errorf("a relay: %w", err)
		}
		close(ended)
	}()
	stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() { _ = stop() })
	return stop
}
