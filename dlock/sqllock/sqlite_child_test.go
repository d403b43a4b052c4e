//go:build unix

package sqllock_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io"
	mrand "math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
)

// sqliteChild is the environment variable that makes the test binary a child process. Its value has
// the task, a number, and the path of the file.
const sqliteChild = "TICKSLOT_TEST_SQLITE_CHILD"

func init() {
	if words := strings.SplitN(os.Getenv(sqliteChild), " ", 3); len(words) == 3 {
		n, _ := strconv.Atoi(words[1])
		if err := child(words[0], n, words[2]); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

func child(what string, n int, path string) error {
	db, err := sql.Open("sqlite", sqliteDSN(path))
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(4)
	store := sqllock.SQLite(db, sqllock.Options{})
	switch what {
	case "migrate":
		return childMigrates(store)
	case "lock":
		return childLocks(db)
	case "hammer":
		return childHammers(store, n)
	case "tries":
		return childTries(store)
	case "crowd":
		return childCrowds(store, n, path+"-counter")
	}
	return errors.New("what?")
}

// told waits until the parent calls tell.
func told() {
	fmt.Println("ready")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
}

func childMigrates(store *sqllock.Store) error {
	told()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	g, err := store.TryAcquire(ctx, driver.Request{Name: "a", Slots: 10, Token: rand.Text(), TTL: time.Minute})
	fmt.Println("slot", g.Slot)
	return err
}

// childLocks keeps the file locked.
func childLocks(db *sql.DB) error {
	if _, err := db.Exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	told()
	return nil
}

// childHammers takes and releases slots as fast as possible.
func childHammers(store *sqllock.Store, slots int) error {
	told()
	var calls int
	var worst time.Duration
	timed := func(call func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		began := time.Now()
		err := call(ctx)
		worst = max(worst, time.Since(began))
		calls++
		return err
	}
	for end := time.Now().Add(hammerTime); time.Now().Before(end); {
		var g driver.Grant
		err := timed(func(ctx context.Context) (err error) {
			g, err = store.TryAcquire(ctx, driver.Request{Name: "a", Slots: slots, Token: rand.Text(),
				TTL: 10 * time.Second})
			return err
		})
		if errors.Is(err, driver.ErrNotAcquired) {
			continue
		}
		if err == nil {
			err = timed(func(ctx context.Context) error { _, err := store.Release(ctx, g); return err })
		}
		if err != nil {
			return err
		}
	}
	fmt.Println("calls", calls, worst.Nanoseconds())
	return nil
}

const (
	hammerTime = 3 * time.Second
	crowdTTL   = 1500 * time.Millisecond
)

// childCrowds runs four workers that take, hold and release slots until the parent closes its
// input. Some hold a slot for longer than a lease. It prints which slot was valid and when. With
// one slot, its holder also increments a number in a file, which two concurrent holders would
// corrupt.
func childCrowds(store *sqllock.Store, slots int, counter string) error {
	session, err := dlock.NewSession(store, dlock.SessionOptions{TTL: crowdTTL, StoreTimeout: crowdTTL / 3})
	if err != nil {
		return err
	}
	stop := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); close(stop) }()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				lease, err := session.Semaphore("crowd", slots).TryAcquire(context.Background())
				if err != nil {
					time.Sleep(time.Duration(1+mrand.IntN(10)) * time.Millisecond) // a pause between attempts
					continue
				}
				hold := time.Duration(mrand.IntN(30)) * time.Millisecond
				if mrand.IntN(50) == 0 {
					hold = 3 * crowdTTL / 2
				}
				for end := time.Now().Add(hold); ; time.Sleep(2 * time.Millisecond) {
					now := time.Now()
					if !lease.Valid() || now.After(end) {
						break
					}
					fmt.Println("valid", lease.Slot(), lease.Fence(), now.UnixNano())
				}
				if slots == 1 && lease.Valid() {
					if err := addOne(counter); err != nil {
						fmt.Println("failed:", err)
					}
					fmt.Println("added")
				}
				_ = lease.Release(context.Background())
			}
		})
	}
	all.Wait()
	return session.Close(context.Background())
}

// addOne increments the number without any lock.
func addOne(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	text := make([]byte, 20)
	_, _ = f.ReadAt(text, 0)
	n, _ := strconv.Atoi(strings.Trim(string(text), " \x00"))
	_, err = f.WriteAt(fmt.Appendf(nil, "%20d", n+1), 0) // one call, so that a kill leaves no partial write
	return err
}

// A process is a child process from its parent's view.
type process struct {
	*exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
}

// startChild starts a process that ends with the test.
func startChild(t testing.TB, what string, n int, path string) *process {
	t.Helper()
	return startAs(t, what, n, path)
}

// startAs uses command to start the child. The child's path is the command's last argument.
func startAs(t testing.TB, what string, n int, path string, command ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command = append(command, exe)
	p := &process{Cmd: exec.Command(command[0], command[1:]...)}
	p.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %s", sqliteChild, what, n, path))
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewScanner(out)
	if p.in, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	return p
}

// says returns the child's next line.
func (p *process) says(t testing.TB) string {
	t.Helper()
	if !p.lines.Scan() {
		t.Fatalf("the child has ended: %v", p.lines.Err())
	}
	return p.lines.Text()
}

// tell lets a child that waits in told continue.
func (p *process) tell(t testing.TB) {
	t.Helper()
	if _, err := fmt.Fprintln(p.in); err != nil {
		t.Fatal(err)
	}
}

func (p *process) signal(t testing.TB, s os.Signal) {
	t.Helper()
	if err := p.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}
