package crowd

import (
	"context"
	"crypto/rand"
	"errors"
	mrand "math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
)

// Contend makes workers acquire and release the slots of one name as fast as they can, and
// sometimes leave one to expire, as a dead host does. It fails if a slot ever has two holders, if
// the fences of a slot do not grow, if PreviousExpired is wrong in a grant, or if an attempt is
// refused as full although there were always free slots. Half of the releases report success.
//
// A worker counts as the holder from its grant until just before its release, or until the earliest
// end of its lease. If another worker is granted the slot meanwhile, it was granted too early.
func Contend(t testing.TB, open func() dlock.DistributedLock, slots, workers, attempts int) {
	t.Helper()
	const ttl = 2 * time.Second
	name := "contend"
	var mu sync.Mutex
	type holding struct {
		token string
		until time.Time // certainly held until then
	}
	held := make([]holding, slots)
	fences := make([]dlock.Fence, slots)
	type ending struct {
		abandoned bool
		at        time.Time // its lease cannot have ended on its own before then
	}
	endings := make([]ending, slots) // of the latest grants
	var granted, refused, left, abandoned int
	left = attempts

	work := func(store dlock.DistributedLock) {
		for {
			mu.Lock()
			left-- // workers continue until there was contention
			done := left < 0 && (workers <= slots || granted > 0 && refused > 0 || left < -20*attempts)
			abandon := !done && mrand.IntN(200) == 0 && (workers > slots || abandoned < slots-workers)
			mu.Unlock()
			if done {
				return
			}
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			token, sent := rand.Text(), time.Now()
			g, err := store.TryAcquire(ctx, driver.Request{Name: name, Slots: slots, Token: token, TTL: ttl})
			if errors.Is(err, dlock.ErrNotAcquired) {
				mu.Lock()
				refused++
				most := workers - 1 + abandoned
				mu.Unlock()
				cancel()
				if most < slots {
					t.Errorf("refused although %d of %d slots can be held at most: %v", most, slots, err)
					return
				}
				continue
			}
			if err != nil {
				t.Error(err)
				cancel()
				return
			}
			mu.Lock()
			granted++
			if h := held[g.Slot]; time.Now().Before(h.until) {
				t.Errorf("slot %d was granted while %s held it", g.Slot, h.token)
			}
			if g.Fence <= fences[g.Slot] && g.Fence != 0 {
				t.Errorf("slot %d: fence %d after %d", g.Slot, g.Fence, fences[g.Slot])
			}
			fences[g.Slot] = g.Fence
			if last := endings[g.Slot]; g.PreviousExpired && !last.abandoned && time.Now().Before(last.at) ||
				!g.PreviousExpired && last.abandoned && g.Fence != 0 {
				t.Errorf("slot %d: PreviousExpired is %t, and that it was abandoned is %t", g.Slot, g.PreviousExpired,
					last.abandoned)
			}
			endings[g.Slot] = ending{abandon, sent.Add(ttl)}
			held[g.Slot] = holding{token, sent.Add(ttl)}
			if abandon {
				abandoned++
			}
			mu.Unlock()
			if !abandon {
				mu.Lock()
				if held[g.Slot].token == token {
					held[g.Slot] = holding{}
				}
				mu.Unlock()
				g.Succeeded = mrand.IntN(2) == 0
				results, err := store.Release(ctx, g)
				if err != nil || results[0].Outcome != driver.GrantOK && time.Since(sent) < ttl {
					t.Errorf("release: %v, %v", results, err)
				}
			}
			cancel()
		}
	}
	var all sync.WaitGroup
	stores := make([]dlock.DistributedLock, min(workers, 4))
	for i := range stores {
		stores[i] = open()
	}
	began := time.Now()
	for w := range workers {
		all.Go(func() { work(stores[w%len(stores)]) })
	}
	all.Wait()
	t.Logf("N=%d, %d workers: %d granted, %d of them abandoned, %d refused, %.0f attempts/s",
		slots, workers, granted, abandoned, refused, float64(attempts)/time.Since(began).Seconds())
	if granted == 0 || workers > slots && refused == 0 {
		t.Errorf("%d granted, %d refused: nothing was contended", granted, refused)
	}
}
