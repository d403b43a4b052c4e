package outbox

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tickslot/tickslot/outbox/internal/store"
)

const (
	// maxResults is how many results one call writes at most.
	maxResults         = 500
	emptyCheckInterval = 5 * time.Millisecond
)

// A marker writes results. It makes one call at a time, with all results that are waiting: so no
// result waits for a batch to fill, and under load each call writes many. Results that cannot be
// written are kept and tried again; until then their keys are not read from the database again.
type marker struct {
	relay *Relay
	news  chan struct{} // something waits

	mu      sync.Mutex // of all callers
	waiting []unwritten
	writing bool // some are being written
}

// unwritten is a result that waits, and who wants to know whether it counts.
type unwritten struct {
	attempt
	written func(counts bool)
}

func (k *marker) put(a attempt, written func(counts bool)) {
	k.mu.Lock()
	k.waiting = append(k.waiting, unwritten{a, written})
	k.mu.Unlock()
	select {
	case k.news <- struct{}{}:
	default: // it is about to look
	}
}

// take takes what waits, up to maxResults.
func (k *marker) take() []unwritten {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := min(maxResults, len(k.waiting))
	batch := k.waiting[:n:n]
	k.waiting = k.waiting[n:]
	k.writing = n > 0
	return batch
}

// waitEmpty waits until everything is written, or ctx ends.
func (k *marker) waitEmpty(ctx context.Context) {
	for sleep(ctx, emptyCheckInterval) {
		k.mu.Lock()
		done := len(k.waiting) == 0 && !k.writing
		k.mu.Unlock()
		if done {
			return
		}
	}
}

// run writes results until ctx ends, and returns how many it could not write.
func (k *marker) run(ctx context.Context) (left int) {
	var batch []unwritten
	wait := minCallWait
	for {
		if len(batch) == 0 {
			batch = k.take()
		}
		var again <-chan time.Time
		news := k.news
		if len(batch) > 0 {
			if k.write(batch) {
				batch, wait = nil, minCallWait
				continue
			}
			again, news = time.After(wait/2+rand.N(wait)), nil
			wait = min(2*wait, maxCallWait)
		}
		select {
		case <-ctx.Done():
			return len(batch) + len(k.take())
		case <-news:
		case <-again:
		}
	}
}

// write writes a batch, and reports whether that went well.
func (k *marker) write(batch []unwritten) bool {
	results := make([]store.Result, len(batch))
	for i, u := range batch {
		results[i] = u.result
	}
	counted, err := call(k.relay.calls, opMark, func(ctx context.Context) ([]int64, error) {
		return k.relay.store.Mark(ctx, k.relay.config.Name, results)
	})
	if err != nil {
		return false
	}
	counts := make(map[int64]bool, len(counted))
	for _, seq := range counted {
		counts[seq] = true
	}
	for _, u := range batch {
		k.relay.told(u.attempt, counts[u.result.Seq])
		u.written(counts[u.result.Seq])
	}
	return true
}
