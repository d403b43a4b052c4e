package dbcalls_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/internal/dbcalls"
)

// A call fails when it returns an error, panics, or takes longer than Timeout. The third in a row
// brings the database down, and one that succeeds brings it up again.
//
// Fails when a panic is passed on, or failures of different kinds of calls are counted apart.
func TestDownAndUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []string
		c := dbcalls.New(dbcalls.Options{Name: "postgres", Timeout: time.Second,
			Failed: func(op string, _ error, first bool) {
				if first {
					told = append(told, "first "+op)
				} else {
					told = append(told, "again "+op)
				}
			},
			Down: func(error) { told = append(told, "down") },
			Up:   func(downFor time.Duration) { told = append(told, "up after "+downFor.String()) }})
		c.Begin(t.Context())
		oops := errors.New("oops")
		do := func(op string, f func(context.Context) error) error {
			_, err := dbcalls.Do(c, op, func(ctx context.Context) (none struct{}, err error) { return none, f(ctx) })
			return err
		}
		fails := func(context.Context) error { return oops }
		panics := func(context.Context) error { panic("oh") }
		hangs := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		if up, _, _ := c.Status(); up || c.WasCalled() {
			t.Error("it is up before the first call")
		}
		if do("a", fails) != oops || do("b", panics) == nil || c.Reachable() != nil {
			t.Error("two failures bring it down, or none is returned")
		}
		if err := do("a", hangs); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(c.Reachable(), err) {
			t.Errorf("%v, %v", err, c.Reachable())
		}
		time.Sleep(time.Minute)
		if err := do("b", func(context.Context) error { return nil }); err != nil || c.Reachable() != nil {
			t.Errorf("%v, %v", err, c.Reachable())
		}
		want := []string{"first a", "first b", "again a", "down", "up after 1m0s"}
		if !slices.Equal(told, want) {
			t.Errorf("%q, want %q", told, want)
		}
		if a, b := c.FailureOf("a"), c.FailureOf("b"); a.Err == nil || b.Err != nil || time.Since(b.Since) != 0 ||
			time.Since(a.Since) != time.Minute+time.Second || c.ErrorCounts()["a"] != 2 {
			t.Errorf("%+v, %+v, %v", a, b, c.ErrorCounts())
		}
	})
}

// Fails when a worker that shuts down reports its database as failing.
func TestCallThatIsCutOffIsNotRecorded(t *testing.T) {
	t.Parallel()
	c := dbcalls.New(dbcalls.Options{Timeout: time.Minute,
		Failed: func(op string, err error, _ bool) { t.Error(op, err) }})
	life, end := context.WithCancel(t.Context())
	c.Begin(life)
	_, err := dbcalls.Do(c, "a", func(ctx context.Context) (int, error) {
		end()
		return 0, ctx.Err()
	})
	if err == nil || c.WasCalled() {
		t.Errorf("%v, recorded: %t", err, c.WasCalled())
	}
}

// A kind of call that always fails is seen after three times the time-out, with its error, while
// others succeed. One that has failed once is not, until it fails again.
//
// Fails when a success of another kind hides it.
func TestKindOfCallThatAlwaysFailsIsSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := dbcalls.New(dbcalls.Options{Timeout: time.Second, Failed: func(string, error, bool) {}})
		c.Begin(t.Context())
		oops := errors.New("oops")
		do := func(op string, err error) {
			_, _ = dbcalls.Do(c, op, func(context.Context) (none struct{}, _ error) { return none, err })
		}
		do("sweep", oops)
		for i := range 5 {
			if err := c.Working(); (err != nil) != (i > 3) || i > 3 && !errors.Is(err, oops) {
				t.Errorf("after %d s: %v", i, err)
			}
			do("claim", oops)
			do("renew", nil)
			time.Sleep(time.Second)
		}
		err := c.Working()
		if err == nil || c.Reachable() != nil || err.Error() != "the call claim has failed for 5s: oops" {
			t.Errorf("%v; reachable: %v", err, c.Reachable())
		}
		do("claim", nil)
		if err := c.Working(); err != nil {
			t.Error(err)
		}
	})
}
