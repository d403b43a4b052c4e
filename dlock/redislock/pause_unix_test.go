//go:build unix

package redislock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/proof/redistest"
)

// childEnv is the environment variable that makes the test binary a process that can be stopped.
// Its value is the server's address.
const childEnv = "TICKSLOT_TEST_CHILD"

func init() {
	if addr := os.Getenv(childEnv); addr != "" {
		child(addr)
	}
}

// child holds a mutex. It prints the time whenever its lease is valid, and how the lease ended.
func child(addr string) {
	client := redis.NewClient(&redis.Options{Password: canary, Addr: addr})
	store := redislock.New(client, redislock.Options{Prefix: "pause:", QuarantineTTL: quarantineTTL})
	session, err := dlock.NewSession(store, dlock.SessionOptions{TTL: quarantineTTL, StoreTimeout: quarantineTTL / 3})
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
	lease, err := session.Mutex("a").Acquire(context.Background())
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
	for lease.Err() == nil {
		now := time.Now()
		if lease.Valid() {
			fmt.Println("valid", now.UnixNano())
		}
		time.Sleep(5 * time.Millisecond)
	}
	fmt.Println("ended", time.Now().UnixNano(), errors.Is(lease.Err(), dlock.ErrLost),
		errors.Is(lease.Release(context.Background()), dlock.ErrLost))
	os.Exit(0)
}

// A process is stopped for longer than its lease. When it runs again, its first call of Valid
// returns false, and its context ends within a second. Its later requests do not disturb the new
// holder.
//
// Fails when neither Valid nor the timer of the trust window checks the clock (the lease is valid
// after the stop), and when release.lua does not compare tokens (the new holder is disturbed).
func TestI2ProcessStopped(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	client := redis.NewClient(&redis.Options{Password: canary, Addr: server.Addr()})
	defer client.Close()
	store := open(t, client, redislock.Options{Prefix: "pause:"})
	awake(t, store)

	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childEnv+"="+server.Addr())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	lines := bufio.NewScanner(out)
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), "valid ") {
		t.Fatalf("the child says %q", lines.Text())
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	session := newSession(t, store, quarantineTTL, quarantineTTL/3)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	lease, err := session.Mutex("a").Acquire(ctx)
	if err != nil {
		t.Fatalf("%v after the holder was stopped: %v", time.Since(stopped), err)
	}
	resumed := time.Now()
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	var ended, stillValid int64
	var lost, released bool
	for lines.Scan() {
		var at int64
		if _, err := fmt.Sscanf(lines.Text(), "valid %d", &at); err == nil && at > resumed.UnixNano() {
			stillValid = at
		}
		if _, err := fmt.Sscanf(lines.Text(), "ended %d %t %t", &ended, &lost, &released); err == nil {
			break
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if stillValid != 0 {
		t.Errorf("valid %v after it went on", time.Duration(stillValid-resumed.UnixNano()))
	}
	if took := time.Duration(ended - resumed.UnixNano()); ended == 0 || took > time.Second || !lost || !released {
		t.Errorf("its context ended after %v, lost: %v; its release found it lost: %v", took, lost, released)
	}
	if !lease.Valid() {
		t.Errorf("the new holder was disturbed: %v", lease.Err())
	}
	if err := lease.Release(context.Background()); err != nil {
		t.Error(err)
	}
}
