//go:build unix

package nativelock_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/nativelock"
	"github.com/tickslot/tickslot/internal/testkit"
)

// nativeChildEnv makes the test binary a process that holds native locks. Its value has a driver, a
// prefix and a data source name.
const nativeChildEnv = "TICKSLOT_TEST_NATIVE_CHILD"

const nativeChildTTL = 4 * time.Second

func init() {
	if words := strings.SplitN(os.Getenv(nativeChildEnv), " ", 3); len(words) == 3 {
		child(words[0], words[1], words[2])
	}
}

// child holds a mutex and reports when it gets the mutex and when it loses it.
func child(driverName, prefix, dsn string) {
	fail := func(err error) {
		if err != nil {
			fmt.Println("failed", err)
			os.Exit(1)
		}
	}
	db, err := sql.Open(driverName, dsn)
	fail(err)
	store := map[string]func(*sql.DB, nativelock.Options) *nativelock.Store{
		"pgx": nativelock.PostgresAdvisory, "mysql": nativelock.MySQLGetLock,
	}[driverName](db, nativelock.Options{Prefix: prefix})
	session, err := dlock.NewSession(store, dlock.SessionOptions{TTL: nativeChildTTL, StoreTimeout: nativeChildTTL / 3})
	fail(err)
	lease, err := session.Mutex("x").TryAcquire(context.Background())
	for began := time.Now(); err != nil && time.Since(began) < 20*time.Second; {
		// On a busy machine, the first connection may take longer than a StoreTimeout.
		lease, err = session.Mutex("x").TryAcquire(context.Background())
	}
	fail(err)
	fmt.Println("holds it")
	<-lease.Done()
	fmt.Println("lost it", lease.Valid())
	os.Exit(0)
}

func startChild(t *testing.T, s subject) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), nativeChildEnv+"="+s.driver+" "+s.prefix+" "+s.dsn)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "holds it" {
		t.Fatalf("the child says %q", lines.Text())
	}
	return cmd, lines
}

// The locks of a process that is killed are free immediately, before its lease ends. The locks of a
// process that is stopped are free when its lease has ended. When that process runs again, it
// learns that it has lost them.
//
// Fails for the stopped process when the server is not told how long the session may be idle.
func TestI6Processes(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	onEach(t, func(t *testing.T, s subject) {
		n := s.open(t, nativelock.Options{})
		for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
			cmd, lines := startChild(t, s)
			mustBeFull(t, n, request("x", 0, time.Minute))
			time.Sleep(nativeChildTTL) // the lease has been extended
			mustBeFull(t, n, request("x", 0, time.Minute))
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			at := time.Now()
			var g driver.Grant
			limit := nativeChildTTL + 5*time.Second
			testkit.Eventually(t, limit, "the lock of the process", func() (ok bool) {
				var err error
				g, err = n.TryAcquire(t.Context(), request("x", 0, time.Minute))
				return err == nil
			})
			t.Logf("%v: free after %v", sig, time.Since(at).Round(time.Millisecond))
			if took := time.Since(at); sig == syscall.SIGKILL && took > nativeChildTTL {
				t.Errorf("killed, and free only after %v", took)
			}
			if sig == syscall.SIGSTOP {
				if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
					t.Fatal(err)
				}
				if !lines.Scan() || lines.Text() != "lost it false" {
					t.Errorf("the child says %q", lines.Text())
				}
			}
			results, err := n.Release(t.Context(), g)
			outcomes(t, results, err, driver.GrantOK)
		}
	})
}
