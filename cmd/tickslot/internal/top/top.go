// Package top is the live view of a fleet: what needs attention, timers with their slots, durable
// handlers, messages of the outbox, hosts. The chosen row can be opened, paused and triggered.
//
// It never waits for the store. While the store is silent or down, the view shows the last read,
// how old it is, and why. Names and errors cannot control the terminal.
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
	Err      string            // why this is not the latest; "": it is
}

// Work is one read of durable runs and of the outbox.
type Work struct {
	Handlers   []Handler // by name
	DurableAt  time.Time // when they were read; zero: never, or there are no such tables
	DurableErr string    // why they are not the latest; "": they are

	Messages      []Message // dead ones, then pending ones, the newest first
	Pending, Dead int64     // how many messages there are
	DueAge        time.Duration
	OutboxAt      time.Time // as above
	OutboxErr     string
}

// A Handler is a handler of durable runs.
type Handler struct {
	Name, Limit           string
	Queued, Running, Dead int64
	SeenAt                time.Time // by a worker that has it; zero: never
	Paused                string    // by whom and until when; "": it is not
}

// A Message is a message of the outbox that waits, or has exhausted its attempts.
type Message struct {
	ID, Topic, Key, LastError string
	Dead                      bool
	Attempts                  int
	CreatedAt                 time.Time
}

// A Kind is the kind of thing that a row shows.
type Kind string

// The kinds of rows.
const (
	KindTimer   Kind = "timer"
	KindHandler Kind = "durable handler"
	KindMessage Kind = "message"
	KindHost    Kind = "host"
)

// A Subject is the thing that a detail shows, or an action changes.
type Subject struct {
	Kind Kind
	Name string // of a message its ID, of a host its holder
}

// An Action is a change of a timer or a durable handler.
type Action string

// The actions.
const (
	ActionPause   Action = "pause"
	ActionResume  Action = "resume"
	ActionTrigger Action = "trigger"
)

// PauseFor is how long a pause from this screen lasts, unless an operator resumes the timer.
const PauseFor = time.Hour

// Options say what is shown.
type Options struct {
	// Store is what people call the store, without a password.
	Store string
	// Read reads what is shown. It is called again an Interval after it has returned.
	Read     func(ctx context.Context) Reading
	Interval time.Duration
	// ReadWork reads durable runs and the outbox in the same way, beside Read: what hangs there
	// does not make the timers old. Nil: the store has neither.
	ReadWork func(ctx context.Context) Work
	// Act does what was confirmed, one action at a time, and returns what was written. The text of
	// its error is for people, as that of Detail.
	Act func(ctx context.Context, action Action, on Subject) (done string, err error)
	// Detail returns all that is known of a subject, in lines.
	Detail func(ctx context.Context, of Subject) ([]string, error)
	// Filter is a text that what is shown has in its name, at the start.
	Filter string
}

// Run shows the fleet until the user quits, or ctx ends. Both have to be a terminal.
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
