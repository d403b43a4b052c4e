package etcdlock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/tickslot/tickslot/dlock/caslock"
	"github.com/tickslot/tickslot/dlock/dlocktest"
	"github.com/tickslot/tickslot/dlock/driver"
)

// server is a single-member etcd in this process.
var server *embed.Etcd

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "etcdlock-")
		if err != nil {
			panic(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		config := embed.NewConfig()
		config.Dir, config.LogLevel, config.UnsafeNoFsync = dir, "fatal", true
		anyPort := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
		config.ListenClientUrls, config.ListenPeerUrls = []url.URL{anyPort}, []url.URL{anyPort}
		if server, err = embed.StartEtcd(config); err != nil {
			panic(err)
		}
		defer server.Close()
		select {
		case <-server.Server.ReadyNotify():
		case <-time.After(time.Minute):
			panic("etcd is not ready after a minute")
		}
		return m.Run()
	}())
}

func newClient(t testing.TB) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Clients[0].Addr().String()},
		DialTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// sharpClock asks for the time until the bounds are narrow enough for short leases.
func sharpClock(t testing.TB, b *backend) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		if err := b.ask(t.Context()); err != nil {
			t.Fatal(err)
		}
		bounds, ok := b.clock.Now()
		if ok && bounds.Until.Sub(bounds.From) < 50*time.Millisecond {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after a minute the time is known to %v", bounds.Until.Sub(bounds.From))
		}
		time.Sleep(37 * time.Millisecond) // so that answers come at different points within a second
	}
}

func TestConformance(t *testing.T) {
	client := newClient(t)
	first := newBackend(client, Options{MaxSkew: -1})
	sharpClock(t, first)
	dlocktest.Run(t, dlocktest.Harness{
		Features: dlocktest.Features{Fence: true, AtomicTick: true, Holders: true, Info: true, LastSuccess: true,
			PreviousExpired: true, Control: true, Shared: true, Rate: true, Delay: true, Listing: true,
			Enumeration: true},
		TTL:   600 * time.Millisecond,
		Slack: 250 * time.Millisecond,
		New: func(t testing.TB) dlocktest.Namespace {
			prefix := rand.Text() + "/"
			return dlocktest.Namespace{
				Open: func() driver.Store {
					b := newBackend(client, Options{Prefix: prefix, MaxSkew: -1})
					b.clock = first.clock // a new host would know the time only to a second
					return caslock.New(b)
				},
				LoseData: func() {
					if _, err := client.Delete(context.Background(), prefix, clientv3.WithPrefix()); err != nil {
						t.Error(err)
					}
				},
			}
		},
	})
}

// A new host knows the time only to a second plus Options.MaxSkew, so its lease lasts longer by
// that much. Each call narrows the bounds.
func TestFirstCalls(t *testing.T) {
	store := New(newClient(t), Options{Prefix: rand.Text() + "/"})
	if err := store.Check(); err != nil {
		t.Fatal(err)
	}
	req := driver.Request{Name: "x", Slots: 1, Token: "a", TTL: time.Minute}
	g, err := store.TryAcquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	list, err := store.List(t.Context(), "x", 1)
	if err != nil || len(list) != 1 || list[0].ExpiresIn > time.Minute || list[0].ExpiresIn < 50*time.Second {
		t.Errorf("%+v, %v: must end in a minute", list, err)
	}
	req.Token = "b"
	if _, err := store.TryAcquire(t.Context(), req); !errors.Is(err, driver.ErrNotAcquired) {
		t.Errorf("the second: %v", err)
	}
	if r, err := store.Release(t.Context(), g); err != nil || r[0].Outcome != driver.GrantOK {
		t.Errorf("%+v, %v", r, err)
	}
}

// Versions are revisions, which are never reused. A write is refused if its document was deleted
// and created again while the write was in flight.
//
// Fails when the version is the key's own version, which restarts at 1.
func TestVersionsAreNotUsedAgain(t *testing.T) {
	client := newClient(t)
	b := newBackend(client, Options{Prefix: rand.Text() + "/"})
	versions, err := b.Put(t.Context(), caslock.Document{Key: "x", Data: []byte("1")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Delete(t.Context(), b.prefix+"x"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Put(t.Context(), caslock.Document{Key: "x", Data: []byte("2")}); err != nil {
		t.Fatal(err)
	}
	_, err = b.Put(t.Context(), caslock.Document{Key: "x", Version: versions[0], Data: []byte("late")})
	if conflict, ok := errors.AsType[*caslock.ConflictError](err); !ok || len(conflict.Current) != 1 ||
		string(conflict.Current[0].Data) != "2" {
		t.Errorf("a write with the version of a deleted document: %v: must conflict, and tell what is there", err)
	}
}

// If no member answers, the call returns an outage within its time, not a setup error.
func TestNobodyAnswers(t *testing.T) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	store := New(client, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err = store.TryAcquire(ctx, driver.Request{Name: "x", Token: "a", TTL: time.Minute})
	if err == nil || errors.Is(err, driver.ErrNotAcquired) || errors.Is(err, driver.ErrSetup) {
		t.Errorf("%v: must be an outage", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}

// Errors that someone must fix are told apart from outages.
func TestMeaningOfErrors(t *testing.T) {
	for _, err := range []error{rpctypes.ErrPermissionDenied, rpctypes.ErrAuthFailed, rpctypes.ErrNoSpace} {
		if got := meaning(err); !errors.Is(got, driver.ErrSetup) || !strings.Contains(got.Error(), err.Error()) {
			t.Errorf("%v is %v: must be one of the set-up", err, got)
		}
	}
	if _, ok := errors.AsType[*caslock.ThrottledError](meaning(rpctypes.ErrTooManyRequests)); !ok {
		t.Error("too many requests do not ask to retry")
	}
	if got := meaning(fmt.Errorf("gone: %w", rpctypes.ErrNoLeader)); errors.Is(got, driver.ErrSetup) {
		t.Errorf("%v is one of the set-up", got)
	}
}
