package timer

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
	"unicode/utf8"
)

// OtherLabel is the value of the label timer for which Config.TimerLabel returned nothing usable.
const OtherLabel = "other"

// A labeler gives timers their values of the label timer, as Config.TimerLabel says.
type labeler struct {
	log    *lineLog
	of     func(timer string) string
	faults rateLimit
}

// label calls user code.
func (l *labeler) label(timer string) string {
	label, err := callLabel(l.of, timer)
	if err != nil {
		l.log.laterLimited(&l.faults, slog.LevelWarn,
			"timer: Config.TimerLabel failed: the timer has the label "+OtherLabel, "timer", timer, "err", err)
		l.log.flush()
		return OtherLabel
	}
	return label
}

func callLabel(of func(string) string, timer string) (label string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it panicked: %v", p) // fmt survives a value that panics
		}
	}()
	switch label = of(timer); {
	case label == "":
		return "", errors.New("it returned an empty text")
	case len(label) > MaxNameLen:
		return "", fmt.Errorf("it returned %d bytes: use at most %d", len(label), MaxNameLen)
	case !utf8.ValidString(label):
		return "", fmt.Errorf("it returned %q, which is not valid UTF-8", label)
	}
	return label, nil
}

// labels are the tallies of the timers of a registry, by their label. Guarded by registry.mu. Nil
// without a TimerLabel: each timer has a tally of its own then, which the ledger makes when it
// first counts, under another mutex.
type labels map[string]*tally

// join lets a new timer count with those that have its label. Its record has a tally of its own
// until then.
func (l labels) join(r *record) {
	if l == nil {
		return
	}
	own := r.tally
	if l[own.label] == nil {
		own.createdAt = time.Now()
		l[own.label] = own
	}
	r.tally = l[own.label]
	r.tally.timers++
}

// part is called when a timer is over: the counts of a label go with its last timer.
func (l labels) part(r *record) {
	if l == nil {
		return
	}
	if r.tally.timers--; r.tally.timers == 0 {
		delete(l, r.tally.label)
	}
}
