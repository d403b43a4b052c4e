package redislock_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/proof/redistest"
)

// If a server's name cannot be resolved, only the store fails. As soon as the name resolves, the
// same session continues. If the name then gets another address, the next connection goes there,
// because each connection resolves the name.
//
// Fails when the store's own connections do not use the client's Dialer, and when they keep the
// first address.
func TestServerNameIsLookedUpAgain(t *testing.T) {
	t.Parallel()
	const name = "redis.example:6379"
	before, after := redistest.New(t), redistest.New(t)
	dns := &resolver{names: map[string]string{}}
	client := redis.NewClient(&redis.Options{Addr: name, Password: canary, Dialer: dns.dial})
	defer client.Close()
	store := open(t, client, redislock.Options{})
	session := newSession(t, store, quarantineTTL, quarantineTTL/3)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()

	for range 3 {
		_, err := session.Mutex("a").TryAcquire(ctx)
		if _, ok := errors.AsType[*dlock.StoreError](err); !ok || errors.Is(err, driver.ErrNotAcquired) ||
			!strings.Contains(err.Error(), "no such host") {
			t.Errorf("the name is not known: %v, want an error of the store that says so", err)
		}
	}
	dns.set(name, before.Addr())
	first, err := session.Mutex("a").Acquire(ctx)
	if err != nil {
		t.Fatalf("the name is known: %v", err)
	}
	dns.set(name, "") // has no effect while connections are open
	select {
	case <-first.Done():
		t.Errorf("lost, although the connections are there: %v", first.Err())
	case <-time.After(quarantineTTL):
	}
	if err := before.Kill(); err != nil {
		t.Fatal(err)
	}
	_, err = session.Mutex("b").TryAcquire(ctx)
	if _, ok := errors.AsType[*dlock.StoreError](err); !ok {
		t.Errorf("the server is gone, and the name, too: %v, want an error of the store", err)
	}
	dns.set(name, after.Addr())
	select { // the other server has no such lease
	case <-first.Done():
	case <-time.After(2 * quarantineTTL):
		t.Error("a lease that nobody has is still held")
	}
	second, err := session.Mutex("a").Acquire(ctx)
	if err != nil {
		t.Fatalf("the name has another address: %v", err)
	}
	if second.Fence() <= first.Fence() {
		t.Errorf("fence %d after %d", second.Fence(), first.Fence())
	}
	if err := second.Release(ctx); err != nil {
		t.Error(err)
	}
}

// A resolver maps names to addresses and dials them.
type resolver struct {
	mu    sync.Mutex
	names map[string]string
}

func (r *resolver) set(name, addr string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names[name] = addr
}

func (r *resolver) dial(ctx context.Context, network, name string) (net.Conn, error) {
	r.mu.Lock()
	addr := r.names[name]
	r.mu.Unlock()
	if addr == "" {
		return nil, &net.OpError{Op: "dial", Net: network, Err: &net.DNSError{Err: "no such host", Name: name,
			IsNotFound: true}}
	}
	var d net.Dialer
	return d.DialContext(ctx, network, addr)
}
