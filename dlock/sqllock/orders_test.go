package sqllock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/internal/servertest"
	"github.com/tickslot/tickslot/internal/sqltest"
)

var ann = dlock.Order{By: "ann", Note: "grün 世界 \U0001F512"}

// limitsWhileGranting has a limit of 1 ordered and taken back, again and again, while workers take, extend and release the slots of that name and
// others order other things. From when the order is back until the next one is sent, no grant may be made beside another lease. Nothing may fail: a
// deadlock in the database would be an error.
func limitsWhileGranting(t *testing.T, open func() dlock.DistributedLock, flips int) {
	t.Helper()
	const slots, workers, name = 8, 10, "flip"
	var mu sync.Mutex
	limited := 0             // the number of the order that limits now, 0: there is none
	grants := 0              // made since then
	held := map[string]int{} // by token, with what limited was when it was asked for
	over := make(chan struct{})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()

	var all sync.WaitGroup
	for w := range workers {
		store := open()
		all.Go(func() {
			for round := 0; ; round++ {
				select {
				case <-over:
					return
				default:
				}
				token := rand.Text()
				req := dlock.Request{Name: name, Slots: slots, Token: token, TTL: time.Minute, Holder: dlock.Holder{Host: "h", PID: w}}
				if w == 0 { // these take another way
					req.Tick = &dlock.Tick{At: time.Now(), Max: 100}
				}
				mu.Lock()
				asked := limited
				mu.Unlock()
				g, err := store.TryAcquire(ctx, req)
				if errors.Is(err, dlock.ErrNotAcquired) {
					continue
				}
				if err != nil {
					t.Errorf("acquire: %v", err)
					return
				}
				mu.Lock()
				held[token] = asked
				grants++
				if limited != 0 && len(held) > 1 {
					for _, other := range held {
						if other == limited {
							t.Errorf("with a limit of 1, %d are held, and one of them was asked for within the limit", len(held))
							break
						}
					}
				}
				mu.Unlock()
				if round%2 == 0 {
					if _, err := store.Extend(ctx, time.Minute, g); err != nil {
						t.Errorf("extend: %v", err)
					}
				}
				mu.Lock()
				delete(held, token)
				mu.Unlock()
				g.Succeeded = round%3 == 0
				if _, err := store.Release(ctx, g); err != nil {
					t.Errorf("release: %v", err)
				}
			}
		})
	}
	control := open().(dlock.Controller)
	all.Go(func() { // others order, too
		for {
			select {
			case <-over:
				return
			case <-time.After(time.Millisecond):
			}
			if err := control.Order(ctx, name, dlock.Change{Trigger: &ann, Pause: &dlock.Pause{Order: ann}}); err != nil {
				t.Errorf("order: %v", err)
			}
			if err := control.Revoke(ctx, name, 0, 1, ann); !errors.Is(err, dlock.ErrNotHeld) {
				t.Errorf("revoke: %v", err)
			}
		}
	})
	set := func(slots int) {
		if err := control.Order(ctx, name, dlock.Change{Limit: &dlock.Limit{Order: ann, Slots: slots}}); err != nil {
			t.Errorf("order: %v", err)
		}
	}
	granted := func(n int) func(context.Context) error {
		return func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			if grants < n {
				return errors.New("too few grants")
			}
			return nil
		}
	}
	for flip := 1; flip <= flips && !t.Failed(); flip++ {
		set(-1)
		mu.Lock()
		grants = 0
		mu.Unlock()
		if err := servertest.Poll(30*time.Second, "grants without a limit", granted(10)); err != nil {
			t.Error(err)
		}
		set(1)
		mu.Lock()
		limited, grants = flip, 0
		mu.Unlock()
		if err := servertest.Poll(30*time.Second, "grants within the limit", granted(3)); err != nil {
			t.Error(err)
		}
		mu.Lock()
		limited = 0
		mu.Unlock()
	}
	close(over)
	all.Wait()
}

// Fails when an order of a limit does not wait for the grants that are being made, when these do not look whether one has come meanwhile, and when a
// grant within a limit does without the lock on the name.
func TestLimitsWhileGrantingPostgres(t *testing.T) {
	long(t)
	t.Parallel()
	s := postgresOn(t, sqltest.Postgres(t, sqltest.Options{Settings: []string{"fsync=off"}}), "pgx").migrated(t)
	limitsWhileGranting(t, s.hosts(t), 150)
}

// A limit that is ordered while a grant is being made comes after it.
//
// Fails when the order does not wait for the rows: then the next attempt does not know of that grant, and is the second within a limit of one.
func TestLimitWaitsForGrantsPostgres(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedPostgres(t)
	dsn := server.DSN("", "", server.NewDatabase(t))
	s := viaPgx(t, dsn)(t, sqllock.Options{})
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	request := func(token string) dlock.Request {
		return dlock.Request{Name: "a", Slots: 2, Token: token, TTL: time.Hour}
	}
	var grants []dlock.Grant
	for _, token := range []string{"0", "1"} { // rows that are there are taken without the lock on the name
		g, err := s.TryAcquire(t.Context(), request(token))
		if err != nil {
			t.Fatal(err)
		}
		grants = append(grants, g)
	}
	if _, err := s.Release(t.Context(), grants...); err != nil {
		t.Fatal(err)
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), "SELECT * FROM distributed_locks_acquire_v2('a:slot:', 2, 't', 60000000, NULL, 0, false, 5000000, 'h', 1, 'i', 10000::bigint)"); err != nil {
		t.Fatal(err)
	}
	ordered, second := make(chan error, 1), make(chan error, 1)
	go func() {
		err := s.Order(context.Background(), "a", dlock.Change{Limit: &dlock.Limit{Order: ann, Slots: 1}})
		ordered <- err
		_, err = s.TryAcquire(context.Background(), request("u"))
		second <- err
	}()
	waits := func(ctx context.Context) error {
		var n int
		err := pool.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&n)
		if err == nil && n == 0 {
			err = errors.New("nobody waits")
		}
		return err
	}
	if err := servertest.Poll(10*time.Second, "the order waits", waits); err != nil {
		t.Error(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ordered; err != nil {
		t.Error(err)
	}
	no, _ := errors.AsType[*dlock.NotAcquiredError](<-second)
	if no == nil || no.Reason != dlock.Full || no.Holder.Host != "h" || no.News.Limit != 1 {
		t.Errorf("%+v: must be full, of the grant that was being made", no)
	}
}

// What somebody writes into the table by hand is an order, too.
//
// Fails when the text has to be JSON: then the answer is an error of the store, and a timer runs as if that were down.
func TestOrderByHandPostgres(t *testing.T) {
	t.Parallel()
	s := postgres(t, "pgx").migrated(t)
	store := s.open(t, sqllock.Options{})
	if err := store.Order(t.Context(), "a", dlock.Change{Trigger: &ann}); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]dlock.Order{"'me'": {By: "me"}, "NULL": {}, "'{\"by\":\"me\",\"note\":\"x\"}'": {By: "me", Note: "x"}} {
		s.exec(t, "UPDATE distributed_locks SET paused_until = now() + interval '1 hour', pause_order = "+text+" WHERE resource_name = 'a:slot:' AND slot = -1")
		_, err := store.TryAcquire(t.Context(), dlock.Request{Name: "a", Slots: 1, Token: "t", TTL: time.Minute})
		if no, ok := errors.AsType[*dlock.NotAcquiredError](err); !ok || no.Reason != dlock.Paused || no.Order != want {
			t.Errorf("%s: %v: must be paused by %+v", text, err, want)
		}
	}
	if o, err := store.Orders(t.Context(), "a"); err != nil || o[0].Trigger == nil || o[0].Trigger.Order != ann {
		t.Errorf("%+v, %v: the trigger must be by ann", o, err)
	}
}
