package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	miniserver "github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock/redislock"
)

// A server is how to reach the Redis that all hosts share.
type server struct {
	client redis.Options
	lock   redislock.Options
	close  func()
}

func openServer(ctx context.Context, url string) (*server, error) {
	if url == "" {
		return embeddedServer()
	}
	return realServer(ctx, url)
}

// realServer never repeats the URL, nor an error that may quote from it: there may be a password inside.
func realServer(ctx context.Context, url string) (*server, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, errors.New("-redis: not a URL like redis://user:password@host:6379/0")
	}
	options.DialTimeout = storeTimeout
	client := redis.NewClient(options)
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if client.Ping(ctx).Err() != nil {
		return nil, errors.New("-redis: it does not answer a PING: is it running, and are address and password right?")
	}
	return &server{
		client: *options,
		lock: redislock.Options{
			Prefix: fmt.Sprintf("quickstart-%s:", strings.ToLower(rand.Text()[:8])), // two demonstrations must not meet
			// A Redis that has just restarted grants nothing for so long, because leases may be out that it has
			// forgotten. It must be no shorter than the leases.
			QuarantineTTL: leaseTTL,
		},
		close: func() {},
	}, nil
}

// embeddedServer starts miniredis, a Redis inside this process. Its keys do not age by themselves: before each script
// they are aged by the time that has passed since the last.
func embeddedServer() (*server, error) {
	mini, err := miniredis.Run()
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	last := time.Now()
	mini.Server().SetPreHook(func(_ *miniserver.Peer, command string, _ ...string) bool {
		if command == "EVALSHA" || command == "EVAL" { // the commands inside a script come by here, too
			mu.Lock()
			defer mu.Unlock()
			now := time.Now()
			mini.FastForward(now.Sub(last))
			last = now
		}
		return false // go on
	})
	return &server{
		client: redis.Options{Addr: mini.Addr()},
		lock:   redislock.Options{Embedded: true},
		close:  mini.Close,
	}, nil
}
