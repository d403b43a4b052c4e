package driver

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// MaxNameLen is the maximum length of a lock's name, in bytes.
const MaxNameLen = 256

// slotMark separates a semaphore's name from a slot number in the keys of every store. A name that
// contained it could address the slots of another name.
const slotMark = ":slot:"

// CheckName reports whether a lock's name is valid. The error says what is wrong and how to fix it.
// A name is 1 to MaxNameLen bytes of valid UTF-8 without control characters. It must not contain
// ":slot:" or begin with "slot:". All other characters are allowed: braces, quotes, colons, spaces,
// asterisks, any script. But on a Redis Cluster without a Prefix, a name must not begin with a
// closing brace.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("the name is empty: give it one")
	case len(name) > MaxNameLen:
		return fmt.Errorf("the name %.20q… is %d bytes long: at most %d", name, len(name), MaxNameLen)
	case !utf8.ValidString(name):
		return fmt.Errorf("the name %q is not valid UTF-8: use text", name)
	case strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("the name %q has a control character: take it out", name)
	case strings.Contains(name, slotMark), strings.HasPrefix(name, slotMark[1:]): // a prefix may end with a colon
		return fmt.Errorf("the name %q has %q in it, which separates a name from the number of its slot: use "+
			"another word",
			name, strings.Trim(slotMark, ":")+":")
	}
	return nil
}

// Validate reports every fault of the request. Every store calls it first, so that no harmful name
// or number reaches a key, a script or a statement.
func (r Request) Validate() error {
	var errs []error
	if err := CheckName(r.Name); err != nil {
		errs = append(errs, err)
	}
	if r.Slots < 0 || r.Slots > MaxSlots {
		errs = append(errs, fmt.Errorf("%d slots: must be 1 to %d", r.Slots, MaxSlots))
	}
	errs = append(errs, r.checkShared()...)
	if err := checkToken(r.Token); err != nil {
		errs = append(errs, err)
	}
	if r.TTL < time.Millisecond || r.TTL > MaxTTL {
		errs = append(errs, fmt.Errorf("a TTL of %v: must be 1ms to %v", r.TTL, MaxTTL))
	}
	if r.Tick != nil && r.Tick.Delay != 0 {
		errs = append(errs, r.checkDelay()...)
	} else if r.Tick != nil {
		if r.Tick.At.IsZero() {
			errs = append(errs, errors.New("a tick at the zero time: set Tick.At to the scheduled instant"))
		}
		if r.Tick.Max < 1 {
			errs = append(errs, fmt.Errorf("a tick with Max %d: must be at least 1", r.Tick.Max))
		}
		if !r.Tick.MissedAt.IsZero() && r.Tick.MissedAt.Before(r.Tick.At) {
			errs = append(errs, errors.New("a tick that was missed before its instant: set Tick.MissedAt to when it "+
				"came due"))
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("dlock: invalid request: %w", errors.Join(errs...))
	}
	return nil
}

// checkDelay reports the faults of a tick with a delay.
func (r Request) checkDelay() (errs []error) {
	if r.Tick.Delay < time.Microsecond || r.Tick.Delay > MaxDelay {
		errs = append(errs, fmt.Errorf("a tick with a Delay of %v: must be 1µs to %v", r.Tick.Delay, MaxDelay))
	}
	if r.Slots != 1 {
		errs = append(errs, fmt.Errorf("a tick with a Delay and %d slots: use a semaphore of one slot", r.Slots))
	}
	return errs
}

// checkShared reports the faults of the further semaphores.
func (r Request) checkShared() (errs []error) {
	if len(r.Shared) > 0 && r.Slots == 0 {
		errs = append(errs, errors.New("a mutex with further semaphores: use a semaphore of one slot"))
	}
	if len(r.Shared) > MaxShared {
		errs = append(errs, fmt.Errorf("%d further semaphores: at most %d", len(r.Shared), MaxShared))
	}
	for i, l := range r.Shared {
		if err := CheckName(l.Name); err != nil {
			errs = append(errs, err)
		}
		if l.Slots < 1 || l.Slots > MaxSlots {
			errs = append(errs, fmt.Errorf("%d slots of %q: must be 1 to %d", l.Slots, l.Name, MaxSlots))
		}
		errs = append(errs, l.checkRate()...)
		same := func(o SemaphoreSpec) bool { return o.Name == l.Name }
		if l.Name == r.Name || slices.ContainsFunc(r.Shared[:i], same) {
			errs = append(errs, fmt.Errorf("the name %q twice in one request: take it out once", l.Name))
		}
	}
	return errs
}

// checkRate reports the faults of Rate and Per.
func (s SemaphoreSpec) checkRate() (errs []error) {
	if s.Rate == 0 && s.Per == 0 {
		return nil
	}
	if s.Rate < 1 || s.Rate > MaxRate {
		errs = append(errs, fmt.Errorf("a Rate of %d for %q: must be 1 to %d, or 0 and no Per", s.Rate, s.Name,
			MaxRate))
	}
	if s.Per < MinPer || s.Per > MaxPer {
		errs = append(errs, fmt.Errorf("a Rate of %q with Per %v: must be %v to %v", s.Name, s.Per, MinPer, MaxPer))
	}
	return errs
}

// checkToken accepts only tokens that no store has to escape.
func checkToken(token string) error {
	if len(token) < 1 || len(token) > 64 {
		return fmt.Errorf("a token of %d bytes: must be 1 to 64", len(token))
	}
	for i := range len(token) {
		if !inTokens[token[i]] {
			return errors.New("a token with a character other than letters, digits, '-' and '_'")
		}
	}
	return nil
}

// inTokens is the set of characters allowed in tokens. It is a table because a heartbeat checks
// thousands of tokens.
var inTokens = func() (set [256]bool) {
	for _, c := range []byte("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_") {
		set[c] = true
	}
	return set
}()
