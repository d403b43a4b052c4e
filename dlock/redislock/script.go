package redislock

import (
	"context"
	_ "embed"
	"errors"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed acquire.lua
	acquireLua string
	//go:embed extend.lua
	extendLua string
	//go:embed release.lua
	releaseLua string
	//go:embed list.lua
	listLua string
	//go:embed order.lua
	orderLua string
	//go:embed orders.lua
	ordersLua string
	//go:embed revoke.lua
	revokeLua string
)

// script sends only the digest of a script; a server that does not know it (a new one, or after
// SCRIPT FLUSH) is sent the source.
type script struct {
	*redis.Script
	source string
}

func newScript(source string) script { return script{redis.NewScript(source), source} }

var (
	acquireScript = newScript(acquireLua)
	extendScript  = newScript(extendLua)
	releaseScript = newScript(releaseLua)
	listScript    = newScript(listLua)
	orderScript   = newScript(orderLua)
	ordersScript  = newScript(ordersLua)
	revokeScript  = newScript(revokeLua)
)

// call is one run of a script within a pipeline.
type call struct {
	keys []string
	args []any
	cmd  *redis.Cmd
}

// runAll runs the script for every call in one pipeline, which on a Cluster is one per node. Each call's
// cmd has its own result; the error is for those that have none, because no connection could be made.
func (s script) runAll(ctx context.Context, client redis.UniversalClient, calls []*call) error {
	if len(calls) == 0 {
		return nil
	}
	pipe := client.Pipeline()
	for _, c := range calls {
		c.cmd = pipe.EvalSha(ctx, s.Hash(), c.keys, c.args...)
	}
	_, err := pipe.Exec(ctx)
	if err == nil {
		return nil
	}
	pipe = client.Pipeline()
	for _, c := range calls {
		if redis.HasErrorPrefix(c.cmd.Err(), "NOSCRIPT") {
			c.cmd = pipe.Eval(ctx, s.source, c.keys, c.args...)
		}
	}
	if pipe.Len() > 0 {
		_, err = pipe.Exec(ctx)
	}
	return err
}

var errAnswer = errors.New("redislock: the server's answer makes no sense")
