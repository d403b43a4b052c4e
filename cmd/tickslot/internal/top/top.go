// Package top is the live view of a fleet: what needs attention, timers with their slots, durable
// handlers, messages of the outbox, and hosts. The chosen row can be opened, paused and triggered.
//
// The view never waits for the store. While the store is silent or down, it shows the last read,
// its age, and the reason. Names and errors cannot control the terminal.
package top

import (
	"context"
	"errors"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cmd/tickslot/internal/fleet"
)

// A Reading is one read of the store.
type Reading struct {
	Snapshot *cluster.Snapshot // never nil; without a ReadAt nothing was read yet
	Timers   []*fleet.Timer    // by name
	Err      string            // why this is outdated; "" if it is current
}

// Work is one read of durable runs and of the outbox.
type Work struct {
	Handlers   []Handler // by name
	DurableAt  time.Time // when they were read; zero if never, or without such tables
	DurableErr string    // why they are outdated; "" if they are current

	Messages      []Message // dead ones, then pending ones, newest first
	Pending, Dead int64     // total numbers of messages
	DueAge        time.Duration
	OutboxAt      time.Time // like DurableAt
	OutboxErr     string
}

// A Handler is a handler of durable runs.
type Handler struct {
	Name, Limit           string
	Queued, Running, Dead int64
	SeenAt                time.Time // last seen by a worker that handles it; zero if never
	Paused                string    // by whom and until when; "" if not paused
}

// A Message is a message of the outbox that waits or has exhausted its attempts.
type Message struct {
	ID, Topic, Key, LastError string
	Dead                      bool
	Attempts                  int
	CreatedAt                 time.Time
}

// A Kind is the kind of subject in a row.
type Kind string

// The kinds of rows.
const (
	KindTimer   Kind = "timer"
	KindHandler Kind = "durable handler"
	KindMessage Kind = "message"
	KindHost    Kind = "host"
)

// A Subject is what a detail shows, or what an action changes.
type Subject struct {
	Kind Kind
	Name string // a message's ID, or a host's holder
}

// An Action is a change of a timer or a durable handler.
type Action string

// The actions.
const (
	ActionPause   Action = "pause"
	ActionResume  Action = "resume"
	ActionTrigger Action = "trigger"
)

// PauseFor is how long a pause from this screen lasts, unless an operator resumes the timer
// earlier.
const PauseFor = time.Hour

// Options say what is shown.
type Options struct {
	// Store names the store for people, without a password.
	Store string
	// Read reads the data. It is called again an Interval after it has returned.
	Read     func(ctx context.Context) Reading
	Interval time.Duration
	// ReadWork reads durable runs and the outbox in the same way, concurrently with Read, so that a
	// hang there does not delay the timers. It is nil if the store has neither.
	ReadWork func(ctx context.Context) Work
	// Act carries out a confirmed action, one at a time, and describes what was written. The texts
	// of its errors are for people, and so are those of Detail.
	Act func(ctx context.Context, action Action, on Subject) (done string, err error)
	// Detail returns everything known about a subject, as lines.
	Detail func(ctx context.Context, of Subject) ([]string, error)
	// Filter is the initial filter: only rows whose names contain it are shown.
	Filter string
}

// Run shows the fleet until the user quits or ctx ends. in and out must be a terminal.
func Run(ctx context.Context, o Options, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends reads in progress
	p := tea.NewProgram(newModel(ctx, o), tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out),
		tea.WithoutSignalHandler(), tea.WithFPS(20))
	if _, err := p.Run(); err != nil && !(errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil) {
		return err
	}
	return nil
}
