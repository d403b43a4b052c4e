package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"
)

// A Controller is a store that keeps overrides of a semaphore: a pause, a limit of slots, and
// requests for a run. The store itself enforces them: TryAcquire refuses a paused name and applies
// the limit. Hosts do not poll: every answer carries Info.Version, which grows with every update,
// and Extend reports a revocation to the lease's holder. Overrides stay until someone changes them,
// even if the name is unused for a long time. They are lost with the store's data. A mutex has no
// overrides.
type Controller interface {
	// Update changes the overrides of a name in one atomic step. Each part that is set replaces its
	// previous value. An update without parts only increases Info.Version.
	Update(ctx context.Context, name string, update Update) error

	// Value returns the text that an Update stored under a name. No other answer carries it.
	Value(ctx context.Context, name string) (ValueState, error)

	// Inspect returns the overrides and the latest claimed tick of each name, in the order of
	// names. If it returns an error, nothing is known about any of them.
	Inspect(ctx context.Context, names ...string) ([]ControlState, error)

	// Revoke marks the lease of a slot as revoked. From then on, Extend answers GrantLost for it,
	// with by as RevokedBy. The slot stays taken until its holder releases it or the lease expires.
	// The fence identifies the lease. If no such lease is held, Revoke returns ErrNotHeld.
	Revoke(ctx context.Context, name string, slot int, fence Fence, by Cause) error
}

// ErrNotHeld is the error of Controller.Revoke if no lease with that fence is held.
var ErrNotHeld = errors.New("not held")

// ErrChanged is the error of Controller.Update if the name's version differs from Value.Version. In
// this case nothing was changed.
var ErrChanged = errors.New("it was changed meanwhile")

// MaxCauseLen is the maximum length of Cause.By and of Cause.Note, in bytes.
const MaxCauseLen = 256

// A Cause says who made a change and why.
type Cause struct {
	By   string `json:"by"`             // a person or a program; 1 to 256 bytes of text without control characters
	Note string `json:"note,omitempty"` // 0 to 256 bytes of such text
}

func (c Cause) String() string { return c.Did("") }

// Did returns a sentence for logs: who did what, and why. It begins with the name, because lists
// cut off long texts at the end.
func (c Cause) Did(what string) string {
	text := "by " + cmp.Or(c.By, "somebody unknown")
	for _, more := range []string{what, c.Note} {
		if more != "" {
			text += ": " + more
		}
	}
	return text
}

// Validate reports the faults of a cause.
func (c Cause) Validate() error {
	if c.By == "" {
		return errors.New("an empty By: say who makes the change")
	}
	for _, text := range []string{c.By, c.Note} {
		if len(text) > MaxCauseLen {
			return fmt.Errorf("%.20q… in By or Note is %d bytes long: at most %d", text, len(text), MaxCauseLen)
		}
		if !utf8.ValidString(text) {
			return fmt.Errorf("%q in By or Note is not valid UTF-8: use text", text)
		}
		for _, r := range text {
			if unicode.IsControl(r) {
				return fmt.Errorf("%q in By or Note has a control character: take it out", text)
			}
		}
	}
	return nil
}

// An Update says what Controller.Update changes. It leaves nil parts unchanged.
type Update struct {
	Pause      *Pause         // refuse requests for the name for some time
	Resume     *Cause         // end the pause; no effect if the name is not paused
	Limit      *LimitOverride // grant this many slots, whatever requests declare
	ResetLimit *Cause         // go back to the slots that requests declare
	Trigger    *Cause         // ask for one run now; the store records the time
	Value      *Value         // store a text; if the name has another version, Update changes nothing
}

// A Pause makes the store refuse requests for a name (ReasonPaused).
type Pause struct {
	Cause
	For time.Duration // from now, by the store's clock; more than 0
}

// A LimitOverride replaces the number of slots that requests declare. It may be higher or lower. It
// does not change how often a tick may start (Tick.Max). Leases that are held continue. The store
// grants a new lease only when fewer than the limit are held.
type LimitOverride struct {
	Cause
	Slots int // 0 to MaxSlots; with 0, every request is refused (ReasonPaused)
}

// Validate reports every fault of the update. Every store calls it first.
func (u Update) Validate() error {
	var errs []error
	if u.Pause != nil {
		errs = append(errs, u.Pause.Cause.Validate())
		if u.Pause.For <= 0 || u.Pause.For > MaxPause {
			errs = append(errs, fmt.Errorf("a pause of %v: must be more than 0 and at most %v; Resume ends one",
				u.Pause.For, MaxPause))
		}
		if u.Resume != nil {
			errs = append(errs, errors.New("both Pause and Resume: use one of them"))
		}
	}
	if u.Resume != nil {
		errs = append(errs, u.Resume.Validate())
	}
	if u.Limit != nil {
		errs = append(errs, u.Limit.Cause.Validate())
		if u.Limit.Slots < 0 || u.Limit.Slots > MaxSlots {
			errs = append(errs, fmt.Errorf("a limit of %d slots: must be 0 to %d; ResetLimit takes it back",
				u.Limit.Slots, MaxSlots))
		}
		if u.ResetLimit != nil {
			errs = append(errs, errors.New("both Limit and ResetLimit: use one of them"))
		}
	}
	if u.ResetLimit != nil {
		errs = append(errs, u.ResetLimit.Validate())
	}
	if u.Trigger != nil {
		errs = append(errs, u.Trigger.Validate())
	}
	if u.Value != nil {
		errs = append(errs, u.Value.validate())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("dlock: invalid update: %w", err)
	}
	return nil
}

// MaxPause is the maximum length of a pause.
const MaxPause = 10 * 365 * 24 * time.Hour

// A ControlState holds the overrides of a name and its latest tick.
type ControlState struct {
	Name    string
	Version int64          // grows with every change, even if the store loses its data; 0 if there was no update
	Pause   *Pause         // nil if not paused; For is the time left
	Limit   *LimitOverride // nil if requests decide
	Trigger *Trigger       // the latest trigger; nil if there was none

	// Err is an error for this name alone. If it is set, the other fields are unknown.
	Err error

	// LastTick is the latest claimed tick, and ClaimedBy the last host that claimed it. Both are
	// zero if no claim is known.
	LastTick  time.Time
	ClaimedBy Holder

	// LastTickAhead means that LastTick is more than MaxTickAhead ahead of the store's clock,
	// because the clock was ahead when the tick was claimed. The store ignores such a tick: any
	// other tick can be claimed.
	LastTickAhead bool
}

// A Trigger asks for one run. To agree on the host that runs it, hosts claim its instant, At, as a
// Tick of a shared name.
type Trigger struct {
	Cause
	At  time.Time     // when the update happened, by the store's clock; later than any earlier trigger
	Age time.Duration // time since At
}
