package dlock

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"
)

// A Controller is a store that keeps what people order for the semaphore of a name, and obeys; it is optional. TryAcquire refuses a paused
// name and keeps to an ordered limit; every answer tells, in News.Orders, whether there is something new; Extend tells the holder of a revoked
// lease. So nobody polls. Orders stay until they are changed, also when the name is not used for long, and get lost with the store's
// data. There are none for a mutex.
type Controller interface {
	// Order changes what is ordered for a name. Each part of the change that is set takes the place of what was ordered before; a change
	// without parts only makes News.Orders grow. It is one atomic step.
	Order(ctx context.Context, name string, change Change) error

	// Orders tells what is ordered for each of the names, in their order, and which tick was claimed last. An error means that
	// nothing is known of any of them.
	Orders(ctx context.Context, names ...string) ([]Orders, error)

	// Revoke marks the lease of a slot: from then on Extend answers Lost for it, with the order. The slot stays taken until its
	// holder releases it or the lease ends, never shorter. Fence says which lease is meant. It returns ErrNotHeld if that is not held (any more).
	Revoke(ctx context.Context, name string, slot int, fence Fence, order Order) error
}

// ErrNotHeld is returned by Controller.Revoke when the lease that is meant is not held.
var ErrNotHeld = errors.New("not held")

// MaxOrderLen is the longest Order.By and Order.Note, in bytes.
const MaxOrderLen = 256

// An Order says who ordered something, and why.
type Order struct {
	By   string `json:"by"`             // a person or a program; 1 to 256 bytes of text without control characters
	Note string `json:"note,omitempty"` // 0 to 256 bytes of such text
}

func (o Order) String() string {
	if o.Note == "" {
		return "by " + o.By
	}
	return fmt.Sprintf("by %s: %s", o.By, o.Note)
}

// Validate says what is wrong with an order.
func (o Order) Validate() error {
	if o.By == "" {
		return errors.New("an order by nobody: say who gives it")
	}
	for _, text := range []string{o.By, o.Note} {
		if len(text) > MaxOrderLen {
			return fmt.Errorf("%.20q… in an order is %d bytes long: at most %d", text, len(text), MaxOrderLen)
		}
		if !utf8.ValidString(text) {
			return fmt.Errorf("%q in an order is not valid UTF-8: use text", text)
		}
		for _, r := range text {
			if unicode.IsControl(r) {
				return fmt.Errorf("%q in an order has a control character: take it out", text)
			}
		}
	}
	return nil
}

// A Change is what Controller.Order changes. A part that is nil stays as it is.
type Change struct {
	Pause   *Pause
	Limit   *Limit
	Trigger *Order // ask for one run now; the store notes the time
}

// A Pause has a name refused (Reason Paused).
type Pause struct {
	Order
	For time.Duration // from now, by the store's clock. 0 or less: resume
}

// A Limit has a semaphore grant at most so many slots at once, whatever requests declare: also more than they declare. It changes nothing of how
// often a tick may start, Tick.Max. Leases that go on
// are not ended; no new one is granted until fewer than the limit are held.
type Limit struct {
	Order
	Slots int // 1 to MaxSlots. 0: nothing is granted (Reason Paused). Less than 0: as requests declare
}

// Validate reports every fault of the change. Stores call it first.
func (c Change) Validate() error {
	var errs []error
	if c.Pause != nil {
		errs = append(errs, c.Pause.Order.Validate())
		if c.Pause.For > MaxPause {
			errs = append(errs, fmt.Errorf("a pause of %v: at most %v", c.Pause.For, MaxPause))
		}
	}
	if c.Limit != nil {
		errs = append(errs, c.Limit.Order.Validate())
		if c.Limit.Slots > MaxSlots {
			errs = append(errs, fmt.Errorf("a limit of %d slots: at most %d", c.Limit.Slots, MaxSlots))
		}
	}
	if c.Trigger != nil {
		errs = append(errs, c.Trigger.Validate())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("dlock: invalid order: %w", err)
	}
	return nil
}

// MaxPause is the longest pause.
const MaxPause = 10 * 365 * 24 * time.Hour

// Orders is what stands ordered for a name.
type Orders struct {
	Name    string
	Version int64    // grows with every change, across loss of the store's data; 0: nothing was ever ordered
	Pause   *Pause   // For is the time left; nil: not paused
	Limit   *Limit   // nil: as requests declare
	Trigger *Trigger // the latest; nil: there was none

	// Err: what went wrong for this name alone, of which then nothing is known.
	Err error

	// The latest tick claimed, and who claimed it last; zero: none is known.
	Tick   time.Time
	Holder Holder
}

// A Trigger asks for one run. Who wants to be the one claims its instant, At, as a Tick of a name that all agree on.
type Trigger struct {
	Order
	At  time.Time     // the instant of the order, by the store's clock; later than that of any trigger before
	Ago time.Duration // how long ago that was
}
