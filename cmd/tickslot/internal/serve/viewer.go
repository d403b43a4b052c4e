package serve

import (
	"context"
	"slices"
	"sync"

	"github.com/tickslot/tickslot/cluster"
)

// A viewer is the registry for a reader: it writes only the changes of operators. So this process
// is not a host of the fleet, and deletes nothing.
type viewer struct {
	cluster.Store

	mu  sync.Mutex
	err error // of the last read
}

// Write writes only the events of operators.
func (v *viewer) Write(ctx context.Context, b cluster.Batch) (cluster.Written, error) {
	events := slices.DeleteFunc(slices.Clone(b.Events), func(e cluster.Event) bool {
		return e.Kind != cluster.EventOperator
	})
	if len(events) == 0 {
		return cluster.Written{}, nil
	}
	return v.Store.Write(ctx, cluster.Batch{Events: events})
}

// Read reads the rows and remembers whether the store answered.
func (v *viewer) Read(ctx context.Context, q cluster.Query) (cluster.Rows, error) {
	rows, err := v.Store.Read(ctx, q)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.err = err
	return rows, err
}

// Sweep deletes nothing, because only hosts delete rows.
func (v *viewer) Sweep(context.Context, cluster.Retention, int) (int, error) { return 0, nil }

// check returns the error of the last read.
func (v *viewer) check() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.err
}
