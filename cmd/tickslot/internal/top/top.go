// Package top is the live view of a fleet: what needs attention, timers with their slots, durable
// handlers, messages of the outbox, hosts. The row that is chosen can be looked at, paused and
// triggered.
//
// It never waits for the store. While that is silent or down, the view has what was read last, and
// says how old it is and why. Names and errors cannot do anything to the terminal.
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

// A Reading is what was read from the store.
type Reading struct {
	Snapshot *cluster.Snapshot // never nil; without a ReadAt nothing was read yet
	Timers   []*fleet.Timer    // by name
	Err      string            // why this is not the latest; "": it is
}

// Work is what was read of durable runs and of the outbox.
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

// A Handler is one of durable runs.
type Handler struct {
	Name, Limit           string
	Queued, Running, Dead int64
	SeenAt                time.Time // by a worker that has it; zero: never
	Paused                string    // by whom and until when; "": it is not
}

// A Message is one of the outbox that waits, or has exhausted its attempts.
type Message struct {
	ID, Topic, Key, LastError string
	Dead                      bool
	Attempts                  int
	CreatedAt                 time.Time
}

// A Kind is what a row is about.
type Kind string

// What rows are about.
const (
	KindTimer   Kind = "timer"
	KindHandler Kind = "durable handler"
	KindMessage Kind = "message"
	KindHost    Kind = "host"
)

// A Subject is what is looked at, or acted on.
type Subject struct {
	Kind Kind
	Name string // of a message its ID, of a host its holder
}

// An Action is what is done to a timer or a durable handler.
type Action string

// What can be done.
const (
	ActionPause   Action = "pause"
	ActionResume  Action = "resume"
	ActionTrigger Action = "trigger"
)

// PauseFor is how long a pause lasts that nobody ends.
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
	defer cancel() // ends what is read
	p := tea.NewProgram(newModel(ctx, o), tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out),
		tea.WithoutSignalHandler(), tea.WithFPS(20))
	if _, err := p.Run(); err != nil && !(errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil) {
		return err
	}
	return nil
}
