package rediskit

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A server that refuses a connection may say so once and then hang up. In protected mode it answers
// the first command with DENIED. On an unauthenticated connection it answers a command of more than
// ten arguments, as most scripts are, with a protocol error, and does not answer later commands.
// That looks like a server that is down, and hosts would run without it (StoreDownRunLocal). The
// first command is the HELLO of go-redis. go-redis ignores its error, because a server older than
// Redis 6 does not know HELLO. Therefore our pools close a connection whose HELLO is refused, and
// return the refusal.

// handshake ends a connection whose HELLO is refused.
type handshake struct {
	// authenticates says that the caller has an OnConnect function, which runs after HELLO and may
	// send a password.
	authenticates bool
}

func (handshake) DialHook(next redis.DialHook) redis.DialHook { return next }

func (handshake) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h handshake) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err != nil && cmd.Name() == "hello" {
			said := err.Error()
			if strings.HasPrefix(said, "DENIED") || strings.HasPrefix(said, "NOAUTH") && !h.authenticates {
				return refusedConn(said)
			}
		}
		return err
	}
}

type onConnect = func(ctx context.Context, cn *redis.Conn) error

// letIn returns the caller's function, followed by a check that the connection is authenticated. It
// returns nil if there is no such function, because then the answer to HELLO has already settled
// that.
func letIn(callers onConnect) onConnect {
	if callers == nil {
		return nil
	}
	return func(ctx context.Context, cn *redis.Conn) error {
		if err := callers(ctx, cn); err != nil {
			return err
		}
		if err := cn.Ping(ctx).Err(); redis.HasErrorPrefix(err, "NOAUTH") {
			return refusedConn(err.Error())
		}
		return nil // later calls report any other error
	}
}

// A refusedConn is a server's refusal of a connection. It is not a redis.Error, because go-redis
// would then treat the connection as usable.
type refusedConn string

func (r refusedConn) Error() string { return string(r) }

// Said returns a server's answer without its position in a script, or "" for an error that is not
// an answer.
func Said(err error) string {
	if answer, ok := errors.AsType[redis.Error](err); ok {
		return Bare(answer.Error())
	}
	if answer, ok := errors.AsType[refusedConn](err); ok {
		return string(answer)
	}
	return ""
}
