package sqlregistry_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/internal/testkit"
)

// A fleet of 200 hosts with 1,000 timers each is written, read and swept. The test logs how long
// each step takes.
//
// Fails when rows are missing.
func TestFleet(t *testing.T) {
	testkit.Long(t)
	const hosts, timers = 200, 1000
	var detail strings.Builder
	detail.WriteString(`{"timers":[`)
	for i := range timers {
		if i > 0 {
			detail.WriteByte(',')
		}
		fmt.Fprintf(&detail, `{"name":"t%d","m":%d}`, i, i%7)
	}
	detail.WriteString(`]}`)
	for _, way := range databases {
		s := ways[way](t)
		store := s.migrated(t)
		began := time.Now()
		for host := range hosts {
			b := batch(fmt.Sprint("host", host))
			b.Host.Detail = []byte(detail.String())
			b.Leases, b.Events, b.Runs = nil, nil, nil
			for i := range 5 {
				l := batch("").Leases[0]
				l.Name, l.Holder, l.ExpiresIn = fmt.Sprint("t", 5*host+i), b.Host.Holder, time.Hour
				b.Leases = append(b.Leases, l)
			}
			for i := range timers * 50 / hosts {
				r := batch("").Runs[0]
				r.ID, r.Timer, r.Holder = fmt.Sprint(host, " ", i), fmt.Sprint("t", i*hosts%timers+host), b.Host.Holder
				b.Runs = append(b.Runs, r)
			}
			if _, err := store.Write(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		t.Logf("%s: %d hosts with %d bytes each, %d runs: written in %v", way, hosts, detail.Len(), timers*50,
			time.Since(began))
		if way == "Postgres" || way == "pgx" {
			s.exec(t, "ANALYZE tickslot_registry") // as autovacuum would do later
		}
		measure := func(what string, call func() error) {
			var times []time.Duration
			for range 5 {
				began := time.Now()
				if err := call(); err != nil {
					t.Errorf("%s: %v", what, err)
				}
				times = append(times, time.Since(began).Round(time.Millisecond))
			}
			t.Logf("%s: %s: %v", way, what, times)
		}
		measure("read", func() error {
			rows, err := store.Read(t.Context(), cluster.Query{Events: 1000, Runs: 1000})
			if err == nil && (len(rows.Hosts) != hosts || len(rows.Leases) != 5*hosts || len(rows.Runs) != 1000) {
				err = fmt.Errorf("%d hosts, %d leases, %d runs", len(rows.Hosts), len(rows.Leases), len(rows.Runs))
			}
			return err
		})
		measure("runs of a timer", func() error {
			_, err := store.Runs(t.Context(), "t7")
			return err
		})
		measure("write", func() error {
			b := batch("host7")
			b.Host.Detail = nil
			_, err := store.Write(t.Context(), b)
			return err
		})
		measure("sweep", func() error {
			_, err := store.Sweep(t.Context(), cluster.Retention{Hosts: time.Hour, Leases: time.Hour, Events: time.Hour,
				Runs: time.Hour}, 1000)
			return err
		})
	}
}
