//go:build unix

package crash

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/httpsink"
)

// childEnv makes the test binary a child process. Its value is a job as JSON.
const childEnv = "TICKSLOT_TEST_OUTBOX_CHILD"

// A job is one role of a child. The child ends when the job does, or when it is killed.
type job struct {
	Role  string // "producer", "relay" or "receiver"
	Place place
	At    string // the statement at which it is killed, or ""
	After bool

	First, Orders int    // of a producer
	URL           string // the receiver, for a relay
	Shards        int
	Lifetime      time.Duration // of a relay; 0: the default lifetime
	Killer        int           // the order whose message kills a relay, or 0
}

func init() {
	text := os.Getenv(childEnv)
	if text == "" {
		return
	}
	var j job
	err := json.Unmarshal([]byte(text), &j)
	if err == nil {
		err = j.do()
	}
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (j job) do() error {
	a, err := j.Place.open(&killer{at: j.At, after: j.After, seen: map[string]bool{}})
	if err != nil {
		return err
	}
	defer a.close()
	switch j.Role {
	case "producer":
		for n := j.First; n < j.First+j.Orders; n++ {
			if err := a.order(context.Background(), n); err != nil {
				return err
			}
			fmt.Println("ordered", n)
		}
		return a.order(context.Background(), j.First) // repeats the order, as if it did not know of the commit
	case "relay":
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(cmp.Or(j.Lifetime, lifetime), cancel)
		maxCrashes := outbox.NoLimit // the test kills relays all the time
		if j.Killer > 0 {
			maxCrashes = outbox.DefaultMaxCrashes
		}
		relay, err := a.relayTo(j.sink(), j.Shards, maxCrashes)
		if err != nil {
			return err
		}
		return relay.Run(ctx)
	default:
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		fmt.Println("listens", l.Addr())
		go func() { _ = http.Serve(l, a) }()
		_, _ = io.Copy(io.Discard, os.Stdin)
		return nil
	}
}

const (
	ttl = 3 * time.Second
	// lifetime is how long a relay runs if it is not killed. It renews its locks after ttl/3.
	lifetime = ttl / 2
	// sweeps is how often dispatched messages are deleted.
	sweeps = 50 * time.Millisecond
)

// relay returns a relay that delivers to a receiver.
func (a *app) relay(url string, shards int) (*outbox.Relay, error) {
	return a.relayTo(job{URL: url}.sink(), shards, outbox.NoLimit)
}

// sink returns a relay's sink.
func (j job) sink() outbox.Sink {
	receiver := httpsink.New(j.URL, httpsink.Options{})
	return outbox.SinkFunc(func(ctx context.Context, d outbox.Delivery) error {
		if j.Killer > 0 && string(d.Payload) == strconv.Itoa(j.Killer) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // until it is killed
		}
		return receiver.Deliver(ctx, d)
	})
}

func (a *app) relayTo(sink outbox.Sink, shards, maxCrashes int) (*outbox.Relay, error) {
	return outbox.NewRelay(a.box, outbox.RelayConfig{DefaultSink: sink, TTL: ttl, Shards: shards,
		RetryInterval: 50 * time.Millisecond, PollInterval: 50 * time.Millisecond,
		MaxCrashes: maxCrashes,
		Retry: outbox.Retry{MaxAttempts: 1000, FirstWait: 10 * time.Millisecond,
			MaxWait: 50 * time.Millisecond},
		SweepInterval: sweeps, Retention: outbox.Retention{Dispatched: time.Millisecond},
		Logger: slog.New(slog.DiscardHandler)})
}

// ServeHTTP is the receiver. It handles some messages twice, as if the relay had not received the
// first answer.
func (a *app) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	n, err := strconv.Atoi(string(body))
	if err != nil {
		http.Error(w, "no number", http.StatusBadRequest)
		return
	}
	id, err := outbox.ParseID(r.Header.Get(httpsink.HeaderID))
	for range 1 + n%2 {
		if err == nil {
			err = a.receive(context.Background(), id, n)
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// A process is a child as its parent sees it.
type process struct {
	*exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
	ctx   context.Context // ends when the process does
	ended func()
}

// start starts a child that ends with the test.
func (j job) start(t testing.TB) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: exec.Command(exe)}
	p.ctx, p.ended = context.WithCancel(t.Context())
	p.Env = append(os.Environ(), childEnv+"="+string(text))
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewScanner(out)
	p.lines.Buffer(nil, 1<<20)
	if p.in, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	return p
}
