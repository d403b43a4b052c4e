package pagekit

import "fmt"

// Outcomes are how the latest runs or deliveries ended, for the template "strip".
type Outcomes struct {
	marks  []Mark
	failed int
	what   string // in the plural
}

// A Mark is at a place in a picture.
type Mark struct {
	X     int
	Class string
}

// OutcomesOf returns how runs or deliveries ended, the oldest first. classify returns whether one
// succeeded or failed; if both are false, it was ended otherwise.
func OutcomesOf[T any](list []T, what string, classify func(T) (succeeded, failed bool)) Outcomes {
	o := Outcomes{what: what}
	for i, t := range list {
		class := "free"
		switch succeeded, failed := classify(t); {
		case succeeded:
			class = "ran"
		case failed:
			class = "failed"
			o.failed++
		}
		o.marks = append(o.marks, Mark{4 * i, class})
	}
	return o
}

// Strip returns what to draw.
func (o Outcomes) Strip() []Mark { return o.marks }

// StripText returns the same in words.
func (o Outcomes) StripText() string {
	return fmt.Sprintf("of the last %d %s %d failed", len(o.marks), o.what, o.failed)
}
