//go:build unix

package redislock_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// starvingEnv is the environment variable that makes the test binary a process without free file
// descriptors. Its value is the server's address.
const starvingEnv = "TICKSLOT_TEST_STARVING"

func init() {
	if addr := os.Getenv(starvingEnv); addr != "" {
		starving(addr)
	}
}

// starving runs two timers and reports each run. It reads commands, one per line (starve, feed, and
// store, which asks for the store's status), and answers each with a line.
func starving(addr string) {
	redis.SetLogger(quiet{})
	client := redis.NewClient(&redis.Options{Addr: addr, Password: canary})
	run := func(ctx context.Context) error {
		r, _ := timer.RunFromContext(ctx)
		fmt.Println("run", r.Timer(), r.Degraded(), r.Valid())
		return nil
	}
	timers, err := timer.New(timer.Config{
		Store:        redislock.New(client, redislock.Options{QuarantineTTL: quarantineTTL}),
		Logger:       slog.New(slog.DiscardHandler),
		TTL:          quarantineTTL,
		StoreTimeout: quarantineTTL / 3,
	},
		timer.Timer{Name: "local", Schedule: schedule.Every(50 * time.Millisecond), Run: run},
		timer.Timer{Name: "skip", Schedule: schedule.Every(50 * time.Millisecond), OnStoreDown: timer.StoreDownSkip,
			Run: run},
	)
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
	go timers.Run(context.Background())
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		limit := before
		switch orders.Text() {
		case "starve":
			limit.Cur = 3 // keeps open descriptors but prevents new ones
			err = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
		case "feed":
			err = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
		}
		fmt.Printf("done %s %v %q\n", orders.Text(), err, timers.Status().Store.Err)
	}
	os.Exit(0)
}

// If connections break and no file descriptors are left for new ones, only the store fails. Timers
// follow their OnStoreDown and recover without a restart when descriptors are available again.
//
// Fails when the store takes a connection error for "not acquired" (nothing runs), and when the
// breaker does not close again.
func TestI7NoFileDescriptors(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	proxy := servertest.NewProxyFor(t, server.Addr())
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), starvingEnv+"="+proxy.Addr())
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
	late := time.AfterFunc(20*time.Second, func() { cmd.Process.Kill() }) // ends the wait for a line
	defer func() {
		late.Stop()
		cmd.Process.Kill()
		cmd.Wait()
	}()
	lines := bufio.NewScanner(out)
	// until reads until each of the prefixes has occurred, and returns how often each line
	// occurred.
	until := func(what string, beginnings ...string) map[string]int {
		t.Helper()
		seen := map[string]int{}
		missing := func() bool {
			for _, beginning := range beginnings {
				if !seenAny(seen, beginning) {
					return true
				}
			}
			return false
		}
		for missing() {
			if !lines.Scan() {
				t.Fatalf("%s: the child ended, or nothing came within 20s; until then %v", what, seen)
			}
			seen[lines.Text()]++
		}
		return seen
	}
	tell := func(order string) map[string]int {
		t.Helper()
		if _, err := io.WriteString(in, order+"\n"); err != nil {
			t.Fatal(err)
		}
		return until(order, "done "+order)
	}
	const local, skip, degraded = "run local false true", "run skip false true", "run local true false"
	until("all is well", local, skip)
	if seen := tell("starve"); !seenAny(seen, "done starve <nil>") {
		t.Fatal(seen)
	}
	until("connections that are there go on", local, skip)
	proxy.Reset()
	for range 3 { // a run that was granted before may report late
		until("no descriptors", degraded)
	}
	for range 10 {
		if seen := until("no descriptors", degraded); len(seen) != 1 {
			t.Errorf("no descriptors: %v: want only degraded runs of local", seen)
		}
	}
	if seen := tell("store"); !strings.Contains(fmt.Sprint(seen), "too many open files") || seenAny(seen, skip) {
		t.Errorf("no descriptors: %v", seen)
	}
	tell("feed")
	until("fed again", local, skip)
}

func seenAny(seen map[string]int, beginning string) bool {
	for line := range seen {
		if strings.HasPrefix(line, beginning) {
			return true
		}
	}
	return false
}
