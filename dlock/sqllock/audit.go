package sqllock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// Audit implements dlock.Auditor. It warns of a schema that Migrate has not made, of settings of the server with which leases do not survive its crash,
// of a server that cannot write, on Postgres of rights that are missing or that are far too many, in SQLite of a file that is not on this machine, and
// of clocks that are more than a second apart.
func (s *Store) Audit(ctx context.Context) ([]string, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	now := s.hostClock
	if now == nil {
		now = time.Now
	}
	warnings, err := s.db.audit(ctx, now)
	if err != nil {
		return warnings, explain(err)
	}
	err = s.Verify(ctx)
	if errors.Is(err, ErrSchema) {
		return append(warnings, err.Error()), nil
	}
	return warnings, err
}

// maxClockOffset is how far the clocks of this host and of the server may be apart.
const maxClockOffset = time.Second

// clockWarnings compares the clocks of this host, before and after it asked, and of the server, in µs since 1970.
func clockWarnings(sent, got time.Time, server int64) []string {
	half := got.Sub(sent) / 2
	ahead := sent.Add(half).Sub(time.UnixMicro(server))
	if ahead.Abs()-half <= maxClockOffset {
		return nil
	}
	const ms = time.Millisecond
	which, then := "ahead of", "starts its ticks too early, and those more than "+dlock.MaxTickAhead.String()+" ahead are refused"
	if ahead < 0 {
		which, then = "behind", "starts its ticks too late"
	}
	return []string{fmt.Sprintf("the clock of this host is %v %s the server's (give or take %v): leases do not mind, but this host %s; have both follow NTP",
		ahead.Abs().Round(ms), which, max(half.Round(ms), ms), then)}
}
