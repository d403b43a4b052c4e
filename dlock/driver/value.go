package driver

import (
	"errors"
	"fmt"
	"time"
)

// MaxValueLen is the maximum length of Value.Text, in bytes.
const MaxValueLen = 1 << 20

// A Value is a text that a store keeps under a name: data other than leases that hosts have to
// agree on. Compare-and-set keeps concurrent writers safe: each writer reads the value and sets a
// new one only if the version has not changed since. If an update gets no answer, its writer reads
// the value again to see whether the update took effect.
type Value struct {
	Text string // 0 to MaxValueLen bytes of printable ASCII; "" removes it
	// Version is the version of the name when the caller last read it, or 0 if there was no update.
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

// A ValueState is the text stored under a name.
type ValueState struct {
	Text    string // "" if there is none
	Version int64  // version of the name; 0 if there was no update
	// At is the time of the answer by the store's clock, or zero if there was no update.
	At time.Time
}
