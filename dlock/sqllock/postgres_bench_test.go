package sqllock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// An acquirer takes a slot of a name and returns a function that releases it, or nil if all slots
// are held.
type acquirer func(worker int, name string, slots int) (release func(), err error)

// naive tries one slot after the other, which is the obvious implementation.
func naive(pool *pgxpool.Pool) acquirer {
	ctx := context.Background()
	return func(_ int, name string, slots int) (func(), error) {
		token := rand.Text()
		for slot := range slots {
			err := pool.QueryRow(ctx, `INSERT INTO naive AS x (name, slot, token, expires_at, fence)
				VALUES ($1, $2, $3, now() + interval '60s', 1)
				ON CONFLICT (name, slot) DO UPDATE
				SET token = EXCLUDED.token, expires_at = EXCLUDED.expires_at, fence = x.fence + 1
				WHERE x.expires_at < now() RETURNING slot`, name, slot, token).Scan(&slot)
			if errors.Is(err, pgx.ErrNoRows) {
				continue
			}
			return func() {
				_, _ = pool.Exec(ctx, "UPDATE naive SET expires_at = 'epoch' WHERE name = $1 AND slot = $2 AND "+
					"token = $3", name, slot, token)
			}, err
		}
		return nil, nil
	}
}

func ours(stores []*sqllock.Store) acquirer {
	ctx := context.Background()
	return func(worker int, name string, slots int) (func(), error) {
		s := stores[worker%len(stores)]
		g, err := s.TryAcquire(ctx, driver.Request{Name: name, Slots: slots, Token: rand.Text(), TTL: time.Minute})
		if errors.Is(err, driver.ErrNotAcquired) {
			return nil, nil
		}
		return func() { _, _ = s.Release(ctx, g) }, err
	}
}

// A scene is a name with some slots that are always held, and workers that acquire and release the
// others.
type scene struct{ slots, held, workers int }

func (s scene) String() string {
	return fmt.Sprintf("N=%d/held=%d%%/workers=%d", s.slots, s.held, s.workers)
}

// play makes the workers make the given number of attempts. It returns the successes per second and
// the median time of an attempt.
func (s scene) play(b *testing.B, acquire acquirer, name string, attempts int) (perSecond float64, p50 time.Duration) {
	b.Helper()
	var left, granted atomic.Int64
	left.Store(int64(attempts))
	times := make([][]time.Duration, s.workers)
	began := time.Now()
	var all sync.WaitGroup
	for w := range s.workers {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				asked := time.Now()
				release, err := acquire(w, name, s.slots)
				times[w] = append(times[w], time.Since(asked))
				if err != nil {
					b.Error(err)
					return
				}
				if release != nil {
					granted.Add(1)
					release()
				}
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	sorted := slices.Sorted(slices.Values(slices.Concat(times...)))
	return float64(granted.Load()) / took.Seconds(), sorted[len(sorted)/2]
}

// hold takes the slots that are always held.
func (s scene) hold(b *testing.B, acquire acquirer, name string) {
	b.Helper()
	for range s.slots * s.held / 100 {
		if release, err := acquire(0, name, s.slots); err != nil || release == nil {
			b.Fatal(release == nil, err)
		}
	}
}

const (
	benchRounds   = 7
	benchAttempts = 400
)

// median sorts list and returns its median.
func median[T float64 | time.Duration](list []T) T {
	slices.Sort(list)
	return list[len(list)/2]
}

func benchPostgres(b *testing.B) (*pgxpool.Pool, []*sqllock.Store) {
	server := sqltest.SharedPostgres(b)
	dsn := server.DSN("", "", server.NewDatabase(b))
	pool, err := pgxpool.New(context.Background(), dsn+"&pool_max_conns=16")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	open := viaPgx(b, dsn)
	var stores []*sqllock.Store
	for range 4 { // each has four connections
		stores = append(stores, open(b, sqllock.Options{}))
	}
	if err := stores[0].Migrate(context.Background()); err != nil {
		b.Fatal(err)
	}
	if _, err := pool.Exec(context.Background(),
		"CREATE TABLE naive (name text, slot int, token text, expires_at timestamptz, fence bigint, PRIMARY KEY "+
			"(name, slot))"); err != nil {
		b.Fatal(err)
	}
	return pool, stores
}

// BenchmarkPostgresAgainstNaive compares the store with the naive loop over the slots, in
// alternating rounds, so that both run under the same conditions. It reports grants per second and
// their ratio (the median of the rounds). The last case is a control: naive against naive.
func BenchmarkPostgresAgainstNaive(b *testing.B) {
	pool, stores := benchPostgres(b)
	compare := func(s scene, ours, theirs acquirer) func(*testing.B) {
		return func(b *testing.B) {
			for b.Loop() {
				name := rand.Text()
				s.hold(b, ours, name+"o")
				s.hold(b, theirs, name+"t")
				var ratios, a, t []float64
				for range benchRounds {
					o, _ := s.play(b, ours, name+"o", benchAttempts)
					n, _ := s.play(b, theirs, name+"t", benchAttempts)
					a, t, ratios = append(a, o), append(t, n), append(ratios, o/n)
				}
				b.ReportMetric(median(ratios), "ratio")
				b.ReportMetric(ratios[0], "ratio-min")
				b.ReportMetric(median(a), "grants/s")
				b.ReportMetric(median(t), "naive-grants/s")
				b.ReportMetric(0, "ns/op")
			}
		}
	}
	for _, s := range []scene{{5, 0, 1}, {5, 0, 16}, {50, 0, 1}, {50, 0, 16}, {50, 90, 1}, {50, 90, 16}} {
		b.Run(s.String(), compare(s, ours(stores), naive(pool)))
	}
	b.Run("control", compare(scene{50, 90, 16}, naive(pool), naive(pool)))
}

// BenchmarkPostgresByN compares the time of an acquire at several numbers of slots with the time at
// five slots.
func BenchmarkPostgresByN(b *testing.B) {
	_, stores := benchPostgres(b)
	acquire := ours(stores[:1])
	for _, held := range []int{0, 90, 100} {
		b.Run(fmt.Sprintf("held=%d%%", held), func(b *testing.B) {
			for b.Loop() {
				scenes := []scene{{5, held, 1}, {50, held, 1}, {1000, held, 1}}
				p50s := make([][]time.Duration, len(scenes))
				name := rand.Text()
				for i, s := range scenes {
					s.hold(b, acquire, name+fmt.Sprint(i))
				}
				for range benchRounds {
					for i, s := range scenes {
						_, p50 := s.play(b, acquire, name+fmt.Sprint(i), benchAttempts)
						p50s[i] = append(p50s[i], p50)
					}
				}
				five := median(p50s[0])
				b.ReportMetric(float64(five.Microseconds()), "N=5-µs")
				b.ReportMetric(float64(median(p50s[1]))/float64(five), "N=50-ratio")
				b.ReportMetric(float64(median(p50s[2]))/float64(five), "N=1000-ratio")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}
