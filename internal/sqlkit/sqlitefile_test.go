package sqlkit

import (
	"context"
	"database/sql"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	_ "modernc.org/sqlite"
)

// Calls that write take turns one after the other, regardless of how many wait.
//
// Fails when calls that have waited for some time give up their place. They would then all poll for
// the lock of the file, which uses most of the processor. The order would be random, so that some
// get the lock only when their time is over.
func TestTurnsAreOneByOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := NewFile(nil)
		var writing atomic.Int32
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				defer f.Turn(t.Context())()
				if n := writing.Add(1); n > 1 {
					t.Errorf("%d calls have the turn", n)
				}
				time.Sleep(turnTime / 10) // in virtual time: the duration of its write
				writing.Add(-1)
			})
		}
		wg.Wait()
	})
}

// A call whose disk hangs has the turn only for a limited time, and no other call waits longer than
// its context.
//
// Fails when a turn lasts until the call ends: all others would wait for it, even if it no longer
// has the lock of the file.
func TestTurnOfCallThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := NewFile(nil)
		began := time.Now()
		first := f.Turn(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), turnTime/2)
		defer cancel()
		f.Turn(ctx)() // never had the turn
		if took := time.Since(began); took != turnTime/2 {
			t.Errorf("a call whose time was over waited %v", took)
		}
		second := f.Turn(t.Context())
		if took := time.Since(began); took != turnTime {
			t.Errorf("the next one waited %v", took)
		}
		first() // does not release the second turn
		third := make(chan func())
		go func() { third <- f.Turn(t.Context()) }()
		synctest.Wait()
		select {
		case <-third:
			t.Error("the third one has the turn of the second")
		default:
		}
		second()
		(<-third)()
	})
}

// Stores that share a pool can determine at the same time whether its connections share a database.
//
// Fails when each holds a connection and waits for another one: with two connections, neither
// continues until its context ends.
func TestSharedAtOnce(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", "file:"+filepath.Base(t.Name())+"?mode=memory&cache=shared")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(2)
	f := NewFile(db)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	const exists = "SELECT EXISTS (SELECT 1 FROM main.sqlite_master WHERE name = ?1)"
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				if err := f.Shared(ctx, exists, "t"); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
