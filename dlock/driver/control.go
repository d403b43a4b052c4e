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
// requests for a run. The store itself enforces them: TryAcquire refuses a paused name and keeps to
// the limit. No host polls: every answer carries Info.Version, which grows with every update, and
// Extend tells the holder of a revoked lease. Overrides stay until they are changed, even if the
// name is not used for a long time, and are lost with the store's data. A mutex has none.
type Controller interface {
	// Update changes the overrides of a name in one atomic step. Each part that is set replaces the
	// previous one. An update without parts only increases Info.Version.
	Update(ctx context.Context, name string, update Update) error

	// Value returns the text that an Update has set under a name. No other answer carries it.
	Value(ctx context.Context, name string) (ValueState, error)

	// Inspect returns the overrides of each name, in the order of the names, and the latest tick
	// claimed. If it returns an error, nothing is known about any of them.
	Inspect(ctx context.Context, names ...string) ([]ControlState, error)

	// Revoke marks the lease of a slot: from then on Extend answers GrantLost for it, with by as
	// RevokedBy. The slot stays taken until its holder releases it or the lease expires. The fence
	// identifies the lease; if that lease is not held (any more), the result is ErrNotHeld.
	Revoke(ctx context.Context, name string, slot int, fence Fence, by Cause) error
}

// ErrNotHeld is returned by Controller.Revoke when no lease with that fence is held.
var ErrNotHeld = errors.New("not held")

// ErrChanged is returned by Controller.Update when the name's version is not Value.Version. Nothing
// was changed then.
var ErrChanged = errors.New("it was changed meanwhile")

// MaxCauseLen is the longest Cause.By and Cause.Note, in bytes.
const MaxCauseLen = 256

// A Cause says who made a change, and why.
type Cause struct {
	By   string `json:"by"`             // a person or a program; 1 to 256 bytes of text without control characters
	Note string `json:"note,omitempty"` // 0 to 256 bytes of such text
}

func (c Cause) String() string { return c.Did("") }

// Did returns a sentence for a log: who did what, and why. The name comes first, because lists cut
// long texts at their end.
func (c Cause) Did(what string) string {
	text := "by " + cmp.Or(c.By, "somebody unknown")
	for _, more := range []string{what, c.Note} {
		if more != "" {
			text += ": " + more
		}
	}
	return text
}

// Validate returns what is wrong with a cause.
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

// An Update says what Controller.Update changes. A part that is nil is not changed.
type Update struct {
	Pause      *Pause         // refuse the name for a while
	Resume     *Cause         // end the pause; nothing happens if the name is not paused
	Limit      *LimitOverride // how many slots to grant, whatever requests declare
	ResetLimit *Cause         // let requests decide again
	Trigger    *Cause         // ask for one run now; the store notes the time
	Value      *Value         // keep a text; if the name has another version, nothing is updated
}

// A Pause makes the store refuse a name (ReasonPaused).
type Pause struct {
	Cause
	For time.Duration // from now, by the store's clock; more than 0
}

// A LimitOverride replaces the number of slots that requests declare by a higher or lower one. It
// does not change how often a tick may start (Tick.Max). Leases that are held continue; no new one
// is granted until fewer than the limit are held.
type LimitOverride struct {
	Cause
	Slots int // 0 to MaxSlots; with 0 every request is refused (ReasonPaused)
}

// Validate reports every fault of the update. Stores call it first.
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

// MaxPause is the longest pause.
const MaxPause = 10 * 365 * 24 * time.Hour

// A ControlState is the overrides of a name, and its latest tick.
type ControlState struct {
	Name    string
	Version int64          // grows with every change, even if the store loses its data; 0: it was never updated
	Pause   *Pause         // For is the time left; nil: not paused
	Limit   *LimitOverride // nil: requests decide
	Trigger *Trigger       // the latest; nil: there was none

	// Err is an error for this name alone. The other fields are then not known.
	Err error

	// The latest tick claimed, and who claimed it last; zero: none is known.
	LastTick  time.Time
	ClaimedBy Holder

	// LastTickAhead: LastTick is more than MaxTickAhead ahead of the store's clock, which was ahead
	// when the tick was claimed. The tick is ignored: any other tick can be claimed.
	LastTickAhead bool
}

// A Trigger asks for one run. To agree on who runs it, hosts claim its instant, At, as a Tick of a
// name that they share.
type Trigger struct {
	Cause
	At  time.Time     // the instant of the update, by the store's clock; later than that of any trigger before
	Age time.Duration // how long ago that was
}
