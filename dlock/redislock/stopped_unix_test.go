//go:build unix

package redislock_test

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/timertest"
)

// stoppedEnv is the environment variable that makes the test binary a separate host. Its value has
// redis or cluster, a prefix, and addresses.
const stoppedEnv = "TICKSLOT_TEST_CHILD_STOPPED"

func init() {
	if words := strings.Fields(os.Getenv(stoppedEnv)); len(words) == 3 {
		store := redislock.New(stoppedClient(words[0], strings.Split(words[2], ",")), stoppedOptions(words[1]))
		if err := timertest.Child(store, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

func stoppedClient(kind string, addrs []string) redis.UniversalClient {
	if kind == "cluster" {
		return redis.NewClusterClient(&redis.ClusterOptions{Username: app, Password: canary, Addrs: addrs})
	}
	return redis.NewClient(&redis.Options{Username: app, Password: canary, Addr: addrs[0]})
}

func stoppedOptions(prefix string) redislock.Options {
	return redislock.Options{Prefix: prefix, QuarantineTTL: timertest.StoppedTTL}
}

// Overrides that were set while a host was stopped reach it when it runs again.
//
// Fails in the cases that timertest.Stopped lists.
func TestOverridesWhileStopped(t *testing.T) {
	t.Parallel()
	testkit.SkipShort(t)
	overridesWhileStopped(t, "redis", redistest.Shared(t).Addr())
}

func TestOverridesWhileStoppedCluster(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	overridesWhileStopped(t, "cluster", redistest.NewCluster(t, 3).Addrs()...)
}

func overridesWhileStopped(t *testing.T, kind string, addrs ...string) {
	t.Helper()
	client := stoppedClient(kind, addrs)
	t.Cleanup(func() { client.Close() })
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	timertest.Stopped(t, timertest.StoppedHarness{New: func(t testing.TB) (timertest.Store, *exec.Cmd) {
		prefix := shop + rand.Text() + ":"
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s", stoppedEnv, kind, prefix, strings.Join(addrs, ",")))
		return timertest.Store{Open: func(t testing.TB) driver.Store {
			return open(t, client,
				stoppedOptions(prefix))
		}}, cmd
	}})
}
