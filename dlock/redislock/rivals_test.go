package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
)

// rivals compete for the only slot of a name. Each uses a separate store and keeps the slot as long
// as it can.
type rivals struct {
	t       *testing.T
	s       *redistest.Sentinel
	workers sync.WaitGroup
	stop    context.CancelFunc
	ctx     context.Context

	mu     sync.Mutex
	leases []*dlock.Lease
	of     map[*redislock.Store]int // numbers of leases by store
}

func newRivals(t *testing.T, s *redistest.Sentinel) *rivals {
	r := &rivals{t: t, s: s, of: map[*redislock.Store]int{}}
	r.ctx, r.stop = context.WithCancel(context.Background())
	t.Cleanup(func() { r.stop(); r.workers.Wait() })
	return r
}

// store returns a new store, as in a separate process.
func (r *rivals) store() *redislock.Store {
	return openFailover(r.t, r.s, "", redislock.Options{QuarantineTTL: quarantineTTL})
}

func openFailover(t testing.TB, s *redistest.Sentinel, user string, opts redislock.Options,
	sentinels ...string) *redislock.Store {
	t.Helper()
	if len(sentinels) == 0 {
		sentinels = s.SentinelAddrs()
	}
	store := redislock.NewFailover(&redis.FailoverOptions{Username: user, Password: canary, MasterName: s.MasterName(),
		SentinelAddrs: sentinels, Dialer: s.Dial}, opts)
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// join starts four goroutines that compete for the slot through one store.
func (r *rivals) join(store *redislock.Store) {
	session := newSession(r.t, store, faultTTL, 300*time.Millisecond)
	for range 4 {
		r.workers.Go(func() {
			for r.ctx.Err() == nil {
				lease, err := session.Semaphore("job", 1).TryAcquire(r.ctx)
				if err != nil {
					time.Sleep(10 * time.Millisecond) // a pause between attempts
					continue
				}
				r.mu.Lock()
				r.leases = append(r.leases, lease)
				r.of[store]++
				r.mu.Unlock()
				select {
				case <-lease.Context().Done():
				case <-r.ctx.Done():
				}
				lease.Release(context.Background())
			}
		})
	}
}

// valid returns how many leases are valid now and how many there have been in all.
func (r *rivals) valid() (n, all int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, lease := range r.leases {
		if lease.Valid() {
			n++
		}
	}
	return n, len(r.leases)
}

// watch checks the leases for the given time. It reports an error if two were valid at the same
// time.
func (r *rivals) watch(length time.Duration) {
	r.t.Helper()
	over, looks := 0, 0
	for end := time.Now().Add(length); time.Now().Before(end); looks++ {
		if n, _ := r.valid(); n > 1 {
			over++
		}
		time.Sleep(10 * time.Millisecond) // until the next check, which a deadline limits
	}
	if _, all := r.valid(); over > 0 {
		r.t.Errorf("two valid leases of a semaphore of one at %d looks of %d, 10 ms apart (%d leases in all)", over,
			looks, all)
	}
}

// granted waits until a rival on the given store has had a lease.
func (r *rivals) granted(to *redislock.Store) {
	r.t.Helper()
	testkit.Eventually(r.t, testkit.Patience, "a lease of this rival", func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.of[to] == 0 {
			return errors.New("none yet")
		}
		return nil
	})
}

// warm makes a store open several connections, and makes the name known to the server.
func warm(t *testing.T, store *redislock.Store) {
	t.Helper()
	awake(t, store)
	session := newSession(t, store, faultTTL, 300*time.Millisecond)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if lease, err := session.Semaphore(fmt.Sprint("warm", i), 1).TryAcquire(t.Context()); err == nil {
				lease.Release(t.Context())
			}
		})
	}
	all.Wait()
}
