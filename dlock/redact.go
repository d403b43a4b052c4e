package dlock

import "fmt"

// A token is all that is needed to extend and release its lease. So neither fmt, with any verb but
// %#v, nor slog prints one.

// String describes the lease without its token.
func (l *Lease) String() string {
	return fmt.Sprintf("lease of %s, slot %d, fence %d", l.Name(), l.Slot(), l.Fence())
}

// String returns whose session it is.
func (s *Session) String() string { return "session of " + s.holder.String() }
