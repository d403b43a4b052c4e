package main

import (
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"time"
)

// A fleet is the workers of one library, with their own database, and a client that queues jobs for
// them. They are goroutines of this process, each with its own connections.
type fleet interface {
	// queue queues a job for each instant: a single job separately, several in large transactions.
	// It notifies the workers if the library can. A job for a past instant is due at once.
	queue(due []time.Time) error
	// settle makes jobs queued in bulk look as if they had been there for a while.
	settle() error
	// start returns when the workers are running.
	start() error
	// done returns how many jobs have succeeded, according to the database.
	done() (int, error)
	// asked returns how many statements or commands, and how many round trips, the workers and the
	// client have made. It fails if they are not counted.
	asked() (statements, trips int64, err error)
	// hold holds the database's xmin horizon until release is called.
	hold() (release func() error, err error)
	// dead returns the number of dead rows that still exist.
	dead() (int, error)
	close() error
}

// A side creates fleets of a library with this many workers, each of which can run this many jobs
// at once. The jobs call work with the instant at which they were due.
type side func(workers, places int, work func(due time.Time)) (fleet, error)

// A job is the payload on all sides.
type job struct {
	Due int64 `json:"due"` // in ns
}

func (job) Kind() string { return "job" }

func jobDue(at time.Time) job { return job{Due: at.UnixNano()} }

func (j job) at() time.Time { return time.Unix(0, j.Due) }

// warnings go to standard error, like the tables, so that standard output has only lines of JSON.
var warnings = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))

// batches is the maximum number of jobs that a transaction queues.
const batches = 1000

// inBatches calls f with a batch of instants at a time.
func inBatches(due []time.Time, f func([]time.Time) error) error {
	for part := range slices.Chunk(due, batches) {
		if err := f(part); err != nil {
			return err
		}
	}
	return nil
}

// atOnceDue returns n instants that are due now.
func atOnceDue(n int) []time.Time { return slices.Repeat([]time.Time{time.Now()}, n) }

// An arrival counts started jobs until all have started.
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
