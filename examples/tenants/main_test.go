package main

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/internal/testkit"
)

// A thousand tenants that are due at the same instant each get one report, from three copies of the
// program, with never more than ten at a time.
//
// Fails without OnFull (then many are skipped), and when a tick runs in two copies.
func TestTenants(t *testing.T) {
	store := memlock.New()
	due := time.Now().Add(5 * time.Second).UTC()
	rows := make([]tenant, 1000)
	for i := range rows {
		rows[i] = tenant{fmt.Sprint("tenant-", i), fmt.Sprintf("%d %d * * * *", due.Second(), due.Minute()), ""}
	}
	var mu sync.Mutex
	now, most, reports := 0, 0, map[string]int{}
	report := func(row tenant) {
		mu.Lock()
		now++
		most = max(most, now)
		reports[row.id]++
		mu.Unlock()
		time.Sleep(5 * time.Millisecond) // creating the report
		mu.Lock()
		now--
		mu.Unlock()
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 3)
	for range 3 {
		go func() { ended <- run(ctx, store, rows, report) }()
	}
	testkit.Eventually(t, 2*time.Minute, "each tenant has a report", func() error {
		mu.Lock()
		defer mu.Unlock()
		if len(reports) < 1000 {
			return fmt.Errorf("%d have", len(reports))
		}
		return nil
	})
	stop()
	for range 3 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	for id, n := range reports {
		if n != 1 {
			t.Errorf("%s has %d reports", id, n)
		}
	}
	if most > 10 || most < 2 {
		t.Errorf("%d at once", most)
	}
}
