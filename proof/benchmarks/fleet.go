package main

import (
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"time"
)

// A fleet is the workers of one library, with a database of their own, and a client that queues
// jobs for them. They are goroutines of this process, each with connections of its own.
type fleet interface {
	// queue queues a job for each instant: one by itself, more in transactions of many. It tells
	// the workers, if the library has a way to. A job of an instant that has passed is due at once.
	queue(due []time.Time) error
	// settle makes what was queued in bulk look as if it had been there for a while.
	settle() error
	// start returns when the workers run.
	start() error
	// done returns how many jobs have succeeded, as the database has it.
	done() (int, error)
	// asked returns how many statements, or commands, and how many round trips the workers and the
	// client have made. It fails if nobody counts them.
	asked() (statements, trips int64, err error)
	// hold holds the xmin horizon of the database until it is released.
	hold() (release func() error, err error)
	// dead returns how many rows no transaction sees that are still there.
	dead() (int, error)
	close() error
}

// A side makes fleets of a library: of so many workers, each with room for so many jobs at once,
// which do this work, and are told when it was due.
type side func(workers, places int, work func(due time.Time)) (fleet, error)

// A job is what all sides have as their payload.
type job struct {
	Due int64 `json:"due"` // in ns
}

func (job) Kind() string { return "job" }

func jobDue(at time.Time) job { return job{Due: at.UnixNano()} }

func (j job) at() time.Time { return time.Unix(0, j.Due) }

// warnings go to where the tables go, so that the standard output has lines of JSON only.
var warnings = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))

// batches is how many jobs a transaction queues at most.
const batches = 1000

// inBatches calls f with some instants at a time.
func inBatches(due []time.Time, f func([]time.Time) error) error {
	for part := range slices.Chunk(due, batches) {
		if err := f(part); err != nil {
			return err
		}
	}
	return nil
}

// atOnceDue is a number of jobs that are due now.
func atOnceDue(n int) []time.Time { return slices.Repeat([]time.Time{time.Now()}, n) }

// An arrival counts the jobs that were started, until all are.
type arrival struct {
	want  int64
	n     atomic.Int64
	first atomic.Pointer[time.Time]
	all   chan struct{}
}

func newArrival(want int) *arrival { return &arrival{want: int64(want), all: make(chan struct{})} }

func (a *arrival) come(time.Time) {
	switch a.n.Add(1) {
	case 1:
		now := time.Now()
		a.first.Store(&now)
	case a.want:
		close(a.all)
	}
}
