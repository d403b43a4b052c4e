package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	bsm "github.com/bsm/redislock"
	redisv8 "github.com/go-redis/redis/v8"
	"github.com/go-redsync/redsync/v4"
	goredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/hibiken/asynq"
	"github.com/hibiken/asynq/x/rate"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/tickslot/tickslot/proof/servertest"
)

// expiry is the length of all locks, tickslot's default.
const expiry = 15 * time.Second

// redsyncOn keeps one mutex per worker. It uses TryLock, which has no wait to configure.
func redsyncOn(r *redisServer, workers int) (*cycles, error) {
	client := r.client()
	rs := redsync.New(goredis.NewPool(client))
	mutexes := make([]*redsync.Mutex, workers)
	for w := range mutexes {
		mutexes[w] = rs.NewMutex(fmt.Sprint("redsync-", w), redsync.WithExpiry(expiry))
	}
	take := func(w int) (func() error, error) {
		m := mutexes[w]
		if err := m.TryLockContext(ctx); err != nil {
			return nil, err
		}
		return func() error {
			if ok, err := m.UnlockContext(ctx); err != nil || !ok {
				return fmt.Errorf("unlock: %v %w", ok, err)
			}
			return nil
		}, nil
	}
	return &cycles{workers: workers, take: take, proof: r.commands(), stop: []func() error{client.Close}}, nil
}

// bsmOn has no retry strategy, so that an attempt is one call.
func bsmOn(r *redisServer, workers int) (*cycles, error) {
	client := r.client()
	locker := bsm.New(client)
	keys := make([]string, workers)
	for w := range keys {
		keys[w] = fmt.Sprint("bsm-", w)
	}
	take := func(w int) (func() error, error) {
		lock, err := locker.Obtain(ctx, keys[w], expiry, nil)
		if err != nil {
			return nil, err
		}
		return func() error { return lock.Release(ctx) }, nil
	}
	return &cycles{workers: workers, take: take, proof: r.commands(), stop: []func() error{client.Close}}, nil
}

// rueidisOn uses one key instead of two of three, because there is one server, NOLOOP as
// documented, and a second before the next key, because there is none.
func rueidisOn(r *redisServer, workers int) (*cycles, error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{r.Addr()}, Password: servertest.Canary},
		KeyMajority:    1,
		NoLoopTracking: true,
		KeyValidity:    expiry,
		TryNextAfter:   time.Second,
	})
	if err != nil {
		return nil, err
	}
	names := make([]string, workers)
	for w := range names {
		names[w] = fmt.Sprint(w)
	}
	take := func(w int) (func() error, error) {
		_, cancel, err := locker.TryWithContext(ctx, names[w])
		if err != nil {
			return nil, err
		}
		return func() error { cancel(); return nil }, nil // waits until the key is gone
	}
	return &cycles{workers: workers, take: take, proof: r.commands(), stop: []func() error{func() error {
		locker.Close()
		return nil
	}}}, nil
}

// etcdOn uses one session, and one mutex per worker.
func etcdOn(workers int) (*cycles, error) {
	e, err := startEtcd()
	if err != nil {
		return nil, err
	}
	session, err := concurrency.NewSession(e.client)
	if err != nil {
		return nil, errors.Join(err, e.stop())
	}
	mutexes := make([]*concurrency.Mutex, workers)
	for w := range mutexes {
		mutexes[w] = concurrency.NewMutex(session, fmt.Sprint("/bench/", w))
	}
	take := func(w int) (func() error, error) {
		if err := mutexes[w].TryLock(ctx); err != nil {
			return nil, err
		}
		return func() error { return mutexes[w].Unlock(ctx) }, nil
	}
	return &cycles{workers: workers, take: take, proof: e.revisions(), stop: []func() error{e.stop, session.Close}}, nil
}

// compareAndDelete releases a lock without a fence.
var compareAndDelete = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)

func deleted(client *redis.Client, key, token string) error {
	n, err := compareAndDelete.Run(ctx, client, []string{key}, token).Int()
	if err == nil && n != 1 {
		err = errors.New("the lock was lost")
	}
	return err
}

// setNX is the lower bound of locks: SET NX PX, and a compare-and-delete.
func setNX(r *redisServer, workers int) (*cycles, error) {
	client := r.client()
	take := func(w int) (func() error, error) {
		key, token := fmt.Sprint("setnx-", w), rand.Text()
		ok, err := client.SetNX(ctx, key, token, expiry).Result()
		if err != nil || !ok {
			return nil, fmt.Errorf("SET NX: %v %w", ok, err)
		}
		return func() error { return deleted(client, key, token) }, nil
	}
	return &cycles{workers: workers, take: take, proof: r.commands(), stop: []func() error{client.Close}}, nil
}

var setAndCount = redis.NewScript(`if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return redis.call('INCR', KEYS[2]) end return 0`)

// setAndFence is the lower bound of locks with a fence: a script with SET NX PX and INCR. It stores
// no holder, and an attempt with a lost reply cannot be repeated.
func setAndFence(r *redisServer, workers int) (*cycles, error) {
	client := r.client()
	take := func(w int) (func() error, error) {
		key, token := fmt.Sprint("fenced-", w), rand.Text()
		fence, err := setAndCount.Run(ctx, client, []string{key, key + ":fence"}, token, expiry.Milliseconds()).Int()
		if err != nil || fence == 0 {
			return nil, fmt.Errorf("SET NX, INCR: %d %w", fence, err)
		}
		return func() error { return deleted(client, key, token) }, nil
	}
	return &cycles{workers: workers, take: take, proof: r.commands(), stop: []func() error{client.Close}}, nil
}

// twoPings is the lower bound of everything with two round trips.
func twoPings(r *redisServer, workers int) (*cycles, error) {
	client := r.client()
	ping := func() error { return client.Ping(ctx).Err() }
	take := func(int) (func() error, error) { return ping, ping() }
	return &cycles{workers: workers, take: take, proof: r.commands(), stop: []func() error{client.Close}}, nil
}

// naiveLoop tries one slot after another. If others hold some slots, they hold the first ones, as
// they would if they used this loop.
type naiveLoop struct {
	slots, held int
	names       func(int) string
}

func (n naiveLoop) on(r *redisServer, workers int) (*cycles, error) {
	client := r.client()
	seen := map[string]bool{}
	for w := range workers {
		if name := n.names(w); !seen[name] {
			seen[name] = true
			for slot := range n.held {
				if err := client.Set(ctx, fmt.Sprint("naive:", name, ":", slot), "held", longest).Err(); err != nil {
					return nil, errors.Join(err, client.Close())
				}
			}
		}
	}
	take := func(w int) (func() error, error) {
		token := rand.Text()
		for slot := range n.slots {
			key := fmt.Sprint("naive:", n.names(w), ":", slot)
			ok, err := client.SetNX(ctx, key, token, expiry).Result()
			if err != nil {
				return nil, err
			}
			if ok {
				return func() error { return deleted(client, key, token) }, nil
			}
		}
		return nil, errBusy
	}
	return &cycles{workers: workers, take: take, proof: r.commands(), allHeld: n.held == n.slots,
		stop: []func() error{client.Close}}, nil
}

// asynqV8 is the client type that the newest published version of x/rate requires.
type asynqV8 struct{ addr string }

func (a asynqV8) MakeRedisClient() any {
	return redisv8.NewClient(&redisv8.Options{Addr: a.addr, Password: servertest.Canary, PoolSize: poolSize})
}

// asynqOn: a semaphore takes a token for a task, so there is a real server. Its handlers lend their
// contexts for the duration of the benchmark.
func asynqOn(r *redisServer, workers, slots int) (*cycles, error) {
	option := asynq.RedisClientOpt{Addr: r.Addr(), Password: servertest.Canary, PoolSize: poolSize}
	client := asynq.NewClient(option)
	defer client.Close()
	for range workers { // before the server starts, which otherwise polls once a second
		if _, err := client.Enqueue(asynq.NewTask("bench", nil), asynq.Timeout(time.Hour)); err != nil {
			return nil, err
		}
	}
	server := asynq.NewServer(option, asynq.Config{Concurrency: workers, LogLevel: asynq.FatalLevel,
		ShutdownTimeout: 100 * time.Millisecond})
	contexts, done := make(chan context.Context, workers), make(chan struct{})
	err := server.Start(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		contexts <- ctx
		<-done
		return nil
	}))
	if err != nil {
		return nil, err
	}
	semaphore := rate.NewSemaphore(asynqV8{r.Addr()}, "bench", slots)
	c := &cycles{workers: workers, proof: r.commands(), stop: []func() error{
		semaphore.Close, func() error { close(done); server.Shutdown(); return nil },
	}}
	tasks := make([]context.Context, workers)
	for w := range tasks {
		select {
		case tasks[w] = <-contexts:
		case <-time.After(10 * time.Second):
			return nil, errors.Join(errors.New("asynq does not start the task"), c.close())
		}
	}
	c.take = func(w int) (func() error, error) {
		ok, err := semaphore.Acquire(tasks[w])
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, errBusy
		}
		return func() error { return semaphore.Release(tasks[w]) }, nil
	}
	return c, nil
}

var countTokens = redis.NewScript(`redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', tonumber(ARGV[2]) - 1)
if redis.call('ZCARD', KEYS[1]) < tonumber(ARGV[1]) then
	redis.call('ZADD', KEYS[1], ARGV[3], ARGV[4])
	return 1
end
return 0`)

// sortedSet does the same as asynq's semaphore with tickslot's client, in case the older client is
// the slow part.
func sortedSet(r *redisServer, workers, slots int) (*cycles, error) {
	client := r.client()
	take := func(w int) (func() error, error) {
		token, now := fmt.Sprint("task-", w), time.Now()
		ok, err := countTokens.Run(ctx, client, []string{"tokens"}, slots, now.Unix(), now.Add(time.Hour).Unix(),
			token).Int()
		if err != nil {
			return nil, err
		}
		if ok == 0 {
			return nil, errBusy
		}
		return func() error {
			if n, err := client.ZRem(ctx, "tokens", token).Result(); err != nil || n != 1 {
				return fmt.Errorf("ZREM: %d %w", n, err)
			}
			return nil
		}, nil
	}
	return &cycles{workers: workers, take: take, proof: r.commands(), stop: []func() error{client.Close}}, nil
}
