package timer

import (
	"context"
	"log/slog"
)

// The mutex of a Scheduler guards its books. No code of the user's runs under it, because that may take long or call us:
// schedules are asked without it, and what is to be logged waits until it is unlocked.

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

// say logs once the books are unlocked. Called with mu held.
func (s *Scheduler) say(level slog.Level, text string, args ...any) {
	s.remarks = append(s.remarks, remark{level, text, args})
}
