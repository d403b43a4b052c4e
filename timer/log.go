package timer

import (
	"context"
	"log/slog"
	"time"
)

// The mutex of a Scheduler guards its books. No code of the user's runs under it, because that may
// take long or call us: schedules are asked without it, and what is to be logged waits until it is
// unlocked.

// A remark is a log line that waits.
type remark struct {
	level slog.Level
	text  string
	args  []any
}

func (s *Scheduler) lock() { s.mu.Lock() }

func (s *Scheduler) unlock() {
	remarks := s.remarks
	s.remarks = nil
	s.mu.Unlock()
	for _, r := range remarks {
		s.log.Log(context.Background(), r.level, r.text, r.args...)
	}
}

// few bounds how many lines of a kind are logged: a thousand timers meet the same thing at once.
type few struct {
	since time.Time
	n     int
}

// fewLines is how many a minute.
const fewLines = 10

// sayFew logs once the books are unlocked, and what is more than a few lines a minute for debugging
// only. Called with mu held.
func (s *Scheduler) sayFew(f *few, level slog.Level, text string, args ...any) {
	if now := time.Now(); f.since.IsZero() || now.Sub(f.since) >= quiet {
		*f = few{since: now}
	}
	if f.n++; f.n > fewLines {
		level = slog.LevelDebug
	}
	s.say(level, text, args...)
}

// A guarded handler is the user's, of which a panic costs a line, not the process.
type guarded struct{ slog.Handler }

func (g guarded) Enabled(ctx context.Context, level slog.Level) (yes bool) {
	defer func() { _ = recover() }()
	return g.Handler.Enabled(ctx, level)
}

func (g guarded) Handle(ctx context.Context, r slog.Record) error {
	defer func() { _ = recover() }()
	return g.Handler.Handle(ctx, r)
}

// say logs once the books are unlocked. Called with mu held.
func (s *Scheduler) say(level slog.Level, text string, args ...any) {
	s.remarks = append(s.remarks, remark{level, text, args})
}
