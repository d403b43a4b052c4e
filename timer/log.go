package timer

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// A lineLog logs at once, or later: no code of the user's runs while one of our mutexes is held,
// because it may take long or call us. So what is to be logged then waits for flush, which every
// path calls that may have logged something and holds no mutex any more.
type lineLog struct {
	*slog.Logger

	waiting atomic.Bool // there are lines

	mu    sync.Mutex
	lines []logLine
}

type logLine struct {
	level slog.Level
	text  string
	args  []any
}

func newLineLog(h slog.Handler) *lineLog { return &lineLog{Logger: slog.New(guarded{h})} }

// later logs with the next flush.
func (l *lineLog) later(level slog.Level, text string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, logLine{level, text, args})
	l.waiting.Store(true)
}

// laterFew is later, but of what is more than a few lines of a kind in a minute only for debugging.
func (l *lineLog) laterFew(f *few, level slog.Level, text string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.more() {
		level = slog.LevelDebug
	}
	l.lines = append(l.lines, logLine{level, text, args})
	l.waiting.Store(true)
}

// flush logs what waits. Called without any mutex.
func (l *lineLog) flush() {
	if !l.waiting.Load() {
		return
	}
	l.mu.Lock()
	lines := l.lines
	l.lines = nil
	l.waiting.Store(false)
	l.mu.Unlock()
	for _, line := range lines {
		l.Log(context.Background(), line.level, line.text, line.args...)
	}
}

// few bounds how many lines of a kind are logged: a thousand timers meet the same thing at once. It
// is guarded by the mutex of the log.
type few struct {
	since time.Time
	n     int
}

// fewLines is how many a minute.
const fewLines = 10

func (f *few) more() bool {
	if now := time.Now(); f.since.IsZero() || now.Sub(f.since) >= quiet {
		*f = few{since: now}
	}
	f.n++
	return f.n > fewLines
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
