package rediskit_test

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/internal/rediskit"
	"github.com/tickslot/tickslot/proof/redistest"
)

// poolsTo returns pools of every kind to a server, without a password.
func poolsTo(t *testing.T, addr string) map[string]redis.UniversalClient {
	t.Helper()
	sets := func(context.Context, *redis.Conn) error { return nil }
	slots := func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: addr}}}}, nil
	}
	cluster := func(o redis.ClusterOptions) redis.UniversalClient {
		o.ClusterSlots = slots
		theirs := redis.NewClusterClient(&o)
		t.Cleanup(func() { theirs.Close() })
		return rediskit.OwnPool(theirs, 3)
	}
	pools := map[string]redis.UniversalClient{
		"server":               rediskit.NewPool(redis.Options{Addr: addr}, 3),
		"server, OnConnect":    rediskit.NewPool(redis.Options{Addr: addr, OnConnect: sets}, 3),
		"cluster":              cluster(redis.ClusterOptions{}),
		"cluster, OnConnect":   cluster(redis.ClusterOptions{OnConnect: sets}),
		"server, old protocol": rediskit.NewPool(redis.Options{Addr: addr, Protocol: 2}, 3),
	}
	for _, pool := range pools {
		t.Cleanup(func() { pool.Close() })
	}
	return pools
}

// refusesAll checks that each command of two pipelines, and each of two single calls, returns the
// server's reason for the refusal.
func refusesAll(t *testing.T, pools map[string]redis.UniversalClient, want string) {
	t.Helper()
	many := make([]any, 20)
	for i := range many {
		many[i] = "argument"
	}
	for name, pool := range pools {
		for range 2 {
			pipe := pool.Pipeline()
			cmds := []*redis.Cmd{pipe.EvalSha(t.Context(), "no script", []string{"k"}, many...),
				pipe.EvalSha(t.Context(), "no script", []string{"k"}, many...)}
			_, err := pipe.Exec(t.Context())
			errs := []error{err, pool.EvalSha(t.Context(), "no script", []string{"k"}, many...).Err()}
			for _, cmd := range cmds {
				if cmd.Err() != nil { // go-redis sets no error for a command that was not sent
					errs = append(errs, cmd.Err())
				}
			}
			for _, err := range errs {
				if !strings.HasPrefix(rediskit.Said(err), want) || rediskit.Refuses(err) == "" {
					t.Errorf("%s: %v, want that the server refuses with %s", name, err, want)
				}
			}
		}
	}
}

// Without the password, every call returns an error that says so, although the server hangs up
// after it has refused one command of more than ten arguments.
//
// Fails when a connection is used although its HELLO was refused: the second command of a pipeline
// gets EOF, and so may the next call.
func TestWithoutThePassword(t *testing.T) {
	t.Parallel()
	refusesAll(t, poolsTo(t, redistest.New(t).Addr()), "NOAUTH")
}

// Every call to a server in protected mode returns that reason, although the server hangs up
// immediately.
//
// Fails when its answer to HELLO is mistaken for that of an old server: calls get EOF or EPIPE.
func TestProtectedMode(t *testing.T) {
	t.Parallel()
	refusesAll(t, poolsTo(t, redistest.NewProtected(t)), "DENIED")
}

// If the caller has a function that authenticates the connection, it is called although HELLO was
// refused before.
//
// Fails when every refusal of HELLO closes the connection.
func TestTheCallersFunctionAuthenticates(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	password := server.Client().Options().Password
	if password == "" {
		t.Fatal("the server has no password")
	}
	pool := rediskit.NewPool(redis.Options{Addr: server.Addr(),
		OnConnect: func(ctx context.Context, cn *redis.Conn) error { return cn.Auth(ctx, password).Err() }}, 3)
	defer pool.Close()
	if err := pool.Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}
