package notify

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// A Reporter passes events to a log and to hooks. Every part of a program may use it while holding
// any mutex: the logger and the hooks run on separate goroutines, because they may block or panic.
type Reporter struct {
	prefix string // of its own lines: the name of the package
	logger *slog.Logger
	lines  Queue       // calls of the logger
	hooks  Queue       // calls of hooks
	debug  atomic.Bool // whether lines at Debug are wanted, by the logger's last answer

	mu      sync.Mutex         // used by all callers of LogSome
	minutes map[string]*minute // by line and subject
}

// LogGrace is how long a service without hooks waits for a slow logger when it ends.
const LogGrace = time.Second

const (
	// maxPerMinute is how often per minute LogSome logs a line about one subject.
	maxPerMinute = 10
	// maxApart is how many lines and subjects LogSome counts separately.
	maxApart = 1000
)

// A minute counts a line since the minute began.
type minute struct {
	began   time.Time
	logged  int
	leftOut int
}

// NewReporter returns a Reporter for a package. A nil logger stands for slog.Default().
func NewReporter(pkg string, logger *slog.Logger) *Reporter {
	r := &Reporter{prefix: pkg, logger: logger, minutes: map[string]*minute{}}
	if r.logger == nil {
		r.logger = slog.Default()
	}
	r.debug.Store(true) // the logger has not been asked yet
	r.hooks.Panicked = func(hook string, value any, stack []byte) {
		r.Log(slog.LevelError, r.prefix+": a hook panicked", "hook", hook, "panic", value, "stack", string(stack))
	}
	return r
}

// AskDebug asks the logger whether lines at Debug are wanted. Call it from time to time, so that
// the level can be changed while the program runs.
func (r *Reporter) AskDebug() {
	r.lines.Put("Logger", func() { r.debug.Store(r.logger.Enabled(context.Background(), slog.LevelDebug)) })
}

// Log logs a line. Lines appear in the order of the calls.
func (r *Reporter) Log(level slog.Level, line string, args ...any) {
	if level > slog.LevelDebug || r.debug.Load() {
		r.lines.Put("Logger", func() { r.logger.Log(context.Background(), level, line, args...) })
	}
}

// LogSome logs a line that may occur thousands of times a second. It logs ten per minute about one
// subject, such as a handler, so that a flood about one subject hides no line about another.
// Further lines are logged at Debug and counted in the next line that is logged.
func (r *Reporter) LogSome(level slog.Level, about, line string, args ...any) {
	now := time.Now()
	r.mu.Lock()
	kind := line + "\x00" + about
	if r.minutes[kind] == nil && len(r.minutes) >= maxApart {
		kind = line // too many subjects, so all new ones are counted together
	}
	m := r.minutes[kind]
	if m == nil {
		m = &minute{began: now}
		r.minutes[kind] = m
	}
	if now.Sub(m.began) >= time.Minute {
		m.began, m.logged = now, 0
	}
	leftOut := m.leftOut
	if m.logged < maxPerMinute {
		m.logged, m.leftOut = m.logged+1, 0
	} else {
		level, leftOut, m.leftOut = slog.LevelDebug, 0, m.leftOut+1
	}
	r.mu.Unlock()
	if leftOut > 0 {
		args = append(args, "left_out", leftOut)
	}
	r.Log(level, line, args...)
}

// Tell queues the call of a hook if the hook is not nil.
func Tell[T any](r *Reporter, name string, hook func(T), info T) {
	if hook != nil {
		r.hooks.Put(name, func() { hook(info) })
	}
}

// Dropped returns the number of dropped calls of hooks.
func (r *Reporter) Dropped() uint64 { return r.hooks.Dropped() }

// Close delivers the waiting events, as Queue.Close does, and returns the hook that does not
// return, or "" if there is none.
func (r *Reporter) Close(timeout time.Duration) (stuck string) {
	stuck = r.hooks.Close(timeout)
	if n := r.hooks.Dropped(); n > 0 {
		r.Log(slog.LevelWarn, r.prefix+": hooks are slower than what happens: events were dropped", "dropped", n)
	}
	r.lines.Close(timeout)
	return stuck
}
