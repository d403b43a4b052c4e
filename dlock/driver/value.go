package driver

import (
	"errors"
	"fmt"
	"time"
)

// MaxValueLen is the longest Value.Text, in bytes.
const MaxValueLen = 1 << 20

// A Value is a text that a store keeps under a name: data other than leases that hosts have to
// agree on. Compare-and-set makes several writers safe: each reads the value, and sets a new one
// only if the version is still the one that it has read. A writer whose update gets no answer reads
// the value again to see whether the update was made.
type Value struct {
	Text string // 0 to MaxValueLen bytes of printable ASCII; "" removes it
	// Version is the version of the name when the caller last read it: 0 if it was never updated.
	// If it has changed since, Update changes nothing and returns ErrChanged.
	Version int64
}

func (v Value) validate() error {
	var errs []error
	if len(v.Text) > MaxValueLen {
		errs = append(errs, fmt.Errorf("a value of %d bytes: at most %d", len(v.Text), MaxValueLen))
	}
	for i := range len(v.Text) {
		if c := v.Text[i]; c < ' ' || c > '~' {
			errs = append(errs, fmt.Errorf("byte %#x in a value: use printable ASCII", c))
			break
		}
	}
	if v.Version < 0 {
		errs = append(errs, fmt.Errorf("version %d of a value: must not be negative", v.Version))
	}
	return errors.Join(errs...)
}

// A ValueState is the text that a store keeps under a name.
type ValueState struct {
	Text    string // "": none
	Version int64  // of the name; 0: it was never updated
	// At is the time of the answer by the store's clock; zero if the name was never updated.
	At time.Time
}
