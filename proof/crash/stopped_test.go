//go:build unix

package crash

import (
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
)

// A relay's process is paused during deliveries for longer than its lease, and another relay
// delivers everything. When the process resumes, it starts no delivery before it leads again.
//
// Fails when a relay starts deliveries that it read before the pause, without checking whether its
// lease has ended meanwhile.
func TestRelayThatWasStoppedBeginsNothing(t *testing.T) {
	t.Parallel()
	p := placeOf(t, "Postgres")
	l, err := newLane(t, &matrix{}, p)
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{app: l.app}
	receiver := httptest.NewServer(g)
	t.Cleanup(receiver.Close)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(l.order(32))
	g.close()
	stopped := job{Role: "relay", Place: p, URL: receiver.URL, Shards: 1, Lifetime: time.Hour}.start(t)
	go func() {
		for stopped.lines.Scan() { // otherwise it would block when its output is not read
		}
	}()
	testkit.Eventually(t, testkit.Patience, "a message of each key is under way", func() bool {
		came, _ := g.counts()
		return came == keys
	})
	must(stopped.Process.Signal(syscall.SIGSTOP))
	t.Cleanup(func() { _ = stopped.Process.Signal(syscall.SIGCONT) })
	stopNew := running(t, l.app, l.receiver.URL)
	testkit.Eventually(t, testkit.Patience, "the other relay has delivered everything", l.app.settled)

	g.open() // the answers are waiting for the process
	must(stopped.Process.Signal(syscall.SIGCONT))
	must(stopNew())
	must(l.order(1))
	testkit.Eventually(t, testkit.Patience, "the relay leads again, and delivers", l.app.settled)
	if came, _ := g.counts(); came != keys+1 {
		t.Errorf("%d deliveries of the relay that was stopped, want %d: %d from before, and one since it leads again",
			came, keys+1, keys)
	}
	v, err := l.verdict()
	if err != nil || v != (verdict{orders: v.orders}) {
		t.Errorf("%+v, %v", v, err)
	}
}
