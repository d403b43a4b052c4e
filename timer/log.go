package timer

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// A lineLog defers log lines. The user's handler may block or call the Scheduler, so it must not
// run while one of our mutexes is held. later keeps a line until flush, which is called after the
// mutex is unlocked.
type lineLog struct {
	*slog.Logger

	waiting atomic.Bool // whether lines are queued
	debug   atomic.Bool // whether the handler wanted lines at Debug when last asked

	mu    sync.Mutex
	lines []logLine
}

type logLine struct {
	level slog.Level
	text  string
	args  []any
}

func newLineLog(logger *slog.Logger) *lineLog {
	l := &lineLog{Logger: logger}
	l.askDebug()
	return l
}

// askDebug asks the handler whether it wants lines at Debug. The scheduling goroutine calls it at
// every wake-up, so that the level can be changed while the scheduler runs.
func (l *lineLog) askDebug() { l.debug.Store(l.Enabled(context.Background(), slog.LevelDebug)) }

// debugs reports whether lines at Debug are wanted. It runs no user code, so the caller may hold a
// mutex.
func (l *lineLog) debugs() bool { return l.debug.Load() }

// later queues a line for the next flush.
func (l *lineLog) later(level slog.Level, text string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, logLine{level, text, args})
	l.waiting.Store(true)
}

// laterLimited is like later, but logs at Debug if the limit for this kind of line is exceeded.
func (l *lineLog) laterLimited(f *rateLimit, level slog.Level, text string, args ...any) {
	l.later(l.limited(f, level), text, args...)
}

// limited counts a line and returns its level, which is Debug if there were too many.
func (l *lineLog) limited(f *rateLimit, level slog.Level) slog.Level {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.exceeded() {
		return slog.LevelDebug
	}
	return level
}

// flush logs the deferred lines. The caller holds no mutex.
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

// A rateLimit limits how many lines of one kind are logged, because a thousand timers may have the
// same fault at the same time. The log's mutex guards it.
type rateLimit struct {
	since time.Time
	n     int
}

// linesPerMinute is how many lines of one kind are logged per logInterval, which is a minute.
const linesPerMinute = 10

// exceeded counts a line and reports whether it exceeds the limit.
func (r *rateLimit) exceeded() bool {
	if now := time.Now(); r.since.IsZero() || now.Sub(r.since) >= logInterval {
		*r = rateLimit{since: now}
	}
	r.n++
	return r.n > linesPerMinute
}
