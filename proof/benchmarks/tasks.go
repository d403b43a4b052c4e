package main

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/servertest"
)

// asynqSide configures asynq. Zero values mean defaults.
type asynqSide struct {
	redis  *redisServer // nil: a separate one that syncs each write to disk
	config asynq.Config
}

// kept is how long succeeded tasks are kept, which is River's default.
const kept = 24 * time.Hour

// taskDatabases counts fleets. Each has one of the server's 16 databases, except the first, for a
// while.
var taskDatabases atomic.Int64

// A taskFleet is a fleet of asynq's servers.
type taskFleet struct {
	redis     *redisServer
	own       bool
	db        int
	client    *asynq.Client
	inspector *asynq.Inspector
	workers   []*asynq.Server
	work      func(due time.Time)
	running   int
}

func (a asynqSide) fleet(workers, places int, work func(due time.Time)) (fleet, error) {
	f := &taskFleet{redis: a.redis, own: a.redis == nil, work: work, db: 1 + int(taskDatabases.Add(1)%15)}
	if f.own {
		server, err := redistest.Start(redistest.Options{Persistence: redistest.AOF})
		if err != nil {
			return nil, err
		}
		f.redis = &redisServer{Server: server, admin: newClient(server.Addr())}
	}
	option := asynq.RedisClientOpt{Addr: f.redis.Addr(), Password: servertest.Canary, PoolSize: poolSize,
		DB: f.db}
	f.client, f.inspector = asynq.NewClient(option), asynq.NewInspector(option)
	for range workers {
		config := a.config
		config.Concurrency, config.LogLevel = places, asynq.ErrorLevel
		f.workers = append(f.workers, asynq.NewServer(option, config))
	}
	return f, nil
}

func (t *taskFleet) start() error {
	for _, w := range t.workers {
		err := w.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
			var j job
			if err := json.Unmarshal(task.Payload(), &j); err != nil {
				return err
			}
			t.work(j.at())
			return nil
		}))
		if err != nil {
			return err
		}
		t.running++
	}
	return nil
}

// queue enqueues jobs one by one, the only way. asynq rounds an instant to the second.
func (t *taskFleet) queue(due []time.Time) error {
	return parallel(len(due), func(i int) error {
		at, options := due[i], []asynq.Option{asynq.Retention(kept)}
		if at.After(time.Now()) {
			at = at.Add(time.Second - time.Nanosecond).Truncate(time.Second)
			options = append(options, asynq.ProcessAt(at))
		}
		payload, err := json.Marshal(jobDue(at))
		if err == nil {
			_, err = t.client.Enqueue(asynq.NewTask(job{}.Kind(), payload), options...)
		}
		return err
	})
}

func (t *taskFleet) settle() error { return nil }

func (t *taskFleet) done() (int, error) {
	info, err := t.inspector.GetQueueInfo("default")
	if err != nil {
		return 0, err
	}
	return info.Completed, nil
}

// asked counts the server's commands, including those inside scripts.
func (t *taskFleet) asked() (statements, trips int64, err error) {
	n, err := t.redis.figure("stats", "total_commands_processed")
	return int64(n), int64(n), err
}

func (t *taskFleet) hold() (func() error, error) { return nil, errors.New("there is no xmin in Redis") }

func (t *taskFleet) dead() (int, error) { return 0, nil }

func (t *taskFleet) close() (err error) {
	for _, w := range t.workers[:t.running] {
		w.Shutdown()
	}
	all := redis.NewClient(&redis.Options{Addr: t.redis.Addr(), Password: servertest.Canary, DB: t.db})
	err = errors.Join(all.FlushDB(ctx).Err(), all.Close(), t.client.Close(), t.inspector.Close())
	if t.own {
		err = errors.Join(err, t.redis.admin.Close())
		t.redis.Close()
	}
	return err
}
