package redislock_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/timertest"
)

// If a server refuses the password or commands that every lease needs, no host runs a tick. At the
// start, timers return an error. Later, they skip ticks.
//
// Fails when such a refusal counts as an outage.
func TestI11NotSetUp(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	open := func(password string) *redislock.Store {
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: app, Password: password})
		t.Cleanup(func() { client.Close() })
		return open(t, client, redislock.Options{Prefix: "shop:", QuarantineTTL: 3 * time.Second})
	}
	set := func(rule string) {
		t.Helper()
		if err := server.Client().Do(t.Context(), "ACL", "SETUSER", app, rule).Err(); err != nil {
			t.Fatal(err)
		}
	}
	timertest.NotSetUp(t, open("wrong"), "check user, password and ACL")
	set("-info")
	timertest.NotSetUp(t, open(canary), "grant +info")
	set("+info")
	timertest.SetUpWronglyForAWhile(t, open(canary), func() { set("-info") }, func() { set("+info") })
}
