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
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/proof/redistest"
)

// revokedEnv is the environment variable that makes the test binary a process whose lease is
// revoked while it is stopped. Its value is the server's address.
const revokedEnv = "TICKSLOT_TEST_CHILD_REVOKED"

// revokedTTL is longer than the process is stopped.
const revokedTTL = 6 * time.Second

func init() {
	if addr := os.Getenv(revokedEnv); addr != "" {
		revokedChild(addr)
	}
}

// revokedChild holds a slot, prints that, prints how the lease ended, waits for a line, and
// releases the slot.
func revokedChild(addr string) {
	client := redis.NewClient(&redis.Options{Password: canary, Addr: addr})
	store := redislock.New(client, redislock.Options{Prefix: "revoke:", QuarantineTTL: revokedTTL})
	session, err := dlock.NewSession(store, dlock.SessionOptions{TTL: revokedTTL, StoreTimeout: revokedTTL / 6})
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
	lease, err := session.Semaphore("a", 1).Acquire(context.Background())
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
	fmt.Println("held")
	<-lease.Done()
	lost, _ := errors.AsType[*dlock.LostError](lease.Err())
	if lost == nil || lost.RevokedBy == nil {
		fmt.Println("ended by", lease.Err())
	} else {
		fmt.Println("revoked", lost.RevokedBy)
	}
	bufio.NewScanner(os.Stdin).Scan()
	fmt.Println("released", lease.Release(context.Background()))
	os.Exit(0)
}

// A lease is revoked while its process is stopped. When the process runs again, its first heartbeat
// reports the revocation with its cause. Until the process releases the slot, the slot is not
// granted.
//
// Fails when extend.lua extends a revoked lease (the process never learns of it), and when
// revoke.lua deletes the key (another holder gets the slot).
func TestRevokedWhileStopped(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	client := redis.NewClient(&redis.Options{Password: canary, Addr: server.Addr()})
	defer client.Close()
	store := open(t, client, redislock.Options{Prefix: "revoke:"})
	awake(t, store)
	ctx := t.Context()
	// A store with a short quarantine makes the first grant, which marks the server as known.
	first, err := store.TryAcquire(ctx, driver.Request{Name: "a", Slots: 1, Token: "first", TTL: quarantineTTL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Release(ctx, first); err != nil {
		t.Fatal(err)
	}

	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	whole, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(whole, exe)
	cmd.Env = append(os.Environ(), revokedEnv+"="+server.Addr())
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	lines := bufio.NewScanner(out)
	says := func(want string) {
		t.Helper()
		if !lines.Scan() || !strings.HasPrefix(lines.Text(), want) {
			t.Fatalf("the child says %q: want %q", lines.Text(), want)
		}
	}
	says("held")
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	list, err := store.List(ctx, "a", 1)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	if err := store.Revoke(ctx, "a", list[0].Slot, list[0].Fence, ann); err != nil {
		t.Fatal(err)
	}
	busy := func() {
		t.Helper()
		_, err := store.TryAcquire(ctx, driver.Request{Name: "a", Slots: 1, Token: "next", TTL: quarantineTTL})
		if no, ok := errors.AsType[*driver.NotAcquiredError](err); !ok || no.Reason != driver.ReasonFull {
			t.Errorf("%v: want full", err)
		}
	}
	busy()
	resumed := time.Now()
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	says("revoked by ann: why")
	if took := time.Since(resumed); took > revokedTTL/3+time.Second {
		t.Errorf("told after %v: want within a heartbeat, %v", took, revokedTTL/3)
	}
	busy()
	if _, err := fmt.Fprintln(in); err != nil {
		t.Fatal(err)
	}
	says("released <nil>")
	if _, err := store.TryAcquire(ctx, driver.Request{Name: "a", Slots: 1, Token: "next",
		TTL: quarantineTTL}); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
