package dlock

import "fmt"

// Anyone who has a token can extend or release its lease. So fmt (except with %#v) and slog print
// no tokens.

// String describes the lease without its token.
func (l *Lease) String() string {
	return fmt.Sprintf("lease of %s, slot %d, fence %d", l.Name(), l.Slot(), l.Fence())
}

// String returns the session's holder as text.
func (s *Session) String() string { return "session of " + s.holder.String() }
