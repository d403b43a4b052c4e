//go:build unix

package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/proof/servertest"
)

// childTries prints the results of Verify and of an acquire of a mutex.
func childTries(store *sqllock.Store) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	say := func(err error) {
		switch {
		case err == nil:
			fmt.Println("fine")
		case errors.Is(err, driver.ErrNotAcquired):
			fmt.Println("held")
		default:
			fmt.Printf("setup %t: %q\n", errors.Is(err, driver.ErrSetup), err)
		}
	}
	_, err := store.TryAcquire(ctx, driver.Request{Name: "b", Token: fmt.Sprint(os.Getpid()), TTL: time.Minute})
	say(err) // before the schema was verified
	say(store.Verify(ctx))
	told()
	return nil
}

// startMounted starts a child in which from is mounted at to. Other processes do not see the mount.
func startMounted(t testing.TB, path, from, to string) *process {
	t.Helper()
	if out, err := exec.Command("unshare", "--mount", "--propagation", "private", "mount", "--bind", from,
		to).CombinedOutput(); err != nil {
		servertest.Require(t, fmt.Errorf("nothing can be mounted here: %w, %s", err, out), "run it as root on Linux")
	}
	return startAs(t, "tries", 0, path, "unshare", "--mount", "--propagation", "private", "sh", "-c",
		`mount --bind "$1" "$2" && exec "$3"`, "sh", from, to)
}

// If two processes reach a SQLite file through two directories, it has two write-ahead logs, and
// neither process sees the other's grants. The first use and Verify refuse such a file, with
// advice. A directory that is mounted twice is accepted.
//
// Fails when links are not counted, or mount points not checked.
func TestI1TwoPathsToOneFileSQLite(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		start func(t *testing.T, one, other string) []func() *process
		words string // part of the refusal; "" for none
	}{
		"hard link": {func(t *testing.T, one, other string) []func() *process {
			if err := os.Link(one, other); err != nil {
				t.Fatal(err)
			}
			return []func() *process{
				func() *process { return startChild(t, "tries", 0, one) },
				func() *process { return startChild(t, "tries", 0, other) },
			}
		}, "hard link"},
		"file mounted": {func(t *testing.T, one, other string) []func() *process {
			third := filepath.Join(t.TempDir(), "locks.db")
			touch(t, other, third)
			return []func() *process{
				func() *process { return startMounted(t, other, one, other) },
				func() *process { return startMounted(t, third, one, third) },
			}
		}, "mount the folder"},
		"log mounted": {func(t *testing.T, one, _ string) []func() *process {
			own := filepath.Join(t.TempDir(), "own")
			touch(t, own, one+"-wal", one+"-shm")
			return []func() *process{
				func() *process { return startMounted(t, one, own, one+"-wal") },
				func() *process { return startMounted(t, one, own, one+"-shm") },
			}
		}, "mount the folder"},
		"folder mounted": {func(t *testing.T, one, other string) []func() *process {
			return []func() *process{
				func() *process { return startMounted(t, other, filepath.Dir(one), filepath.Dir(other)) },
				func() *process { return startChild(t, "tries", 0, one) },
			}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one, other := sqlitePath(t), sqlitePath(t)
			db := openSQLite(t, sqliteDSN(one))
			// This leaves no log behind.
			if err := errors.Join(sqllock.SQLite(db, sqllock.Options{}).Migrate(t.Context()), db.Close()); err != nil {
				t.Fatal(err)
			}
			var answers []string
			for _, start := range c.start(t, one, other) { // one after the other; the first keeps running
				p := start()
				for _, what := range []string{"acquire", "Verify"} {
					answer := p.says(t)
					answers = append(answers, answer)
					if c.words != "" && (!strings.HasPrefix(answer, "setup true") ||
						!strings.Contains(answer, c.words)) {
						t.Errorf("%s answers %s: must be refused as set up wrongly, with the words %q", what, answer,
							c.words)
					}
				}
				p.says(t)
			}
			if c.words == "" && strings.Join(answers, ", ") != "fine, fine, held, fine" {
				t.Errorf("%q: the first must have it, and the second know that", answers)
			}
		})
	}
}

// If a hard link is created while a file is in use, for example by a backup, no lease ends. But
// nothing is granted until the link is gone.
//
// Fails when links are counted only when a connection is opened, and when held leases are no longer
// extended.
func TestLinkedWhileInUseSQLite(t *testing.T) {
	t.Parallel()
	path := sqlitePath(t)
	store := sqliteOn(path).migrated(t).open(t, sqllock.Options{})
	g, err := store.TryAcquire(t.Context(), oneOfTwo("a", "t"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Link(path, path+".backup"); err != nil {
		t.Fatal(err)
	}
	if _, err := store.TryAcquire(t.Context(), oneOfTwo("a", "u")); !errors.Is(err, driver.ErrSetup) {
		t.Errorf("%v: must be refused as set up wrongly", err)
	}
	if r, err := store.Extend(t.Context(), time.Minute, g); err != nil || r[0].Outcome != driver.GrantOK {
		t.Errorf("extend: %v, %v", r, err)
	}
	if r, err := store.Release(t.Context(), g); err != nil || r[0].Outcome != driver.GrantOK {
		t.Errorf("release: %v, %v", r, err)
	}
	if err := os.Remove(path + ".backup"); err != nil {
		t.Fatal(err)
	}
	if _, err := store.TryAcquire(t.Context(), oneOfTwo("a", "v")); err != nil {
		t.Errorf("when the link is gone: %v", err)
	}
}

func touch(t testing.TB, paths ...string) {
	t.Helper()
	for _, path := range paths {
		f, err := os.OpenFile(path, os.O_CREATE, 0o600)
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
