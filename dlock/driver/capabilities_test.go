package driver_test

import (
	"context"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// A decorated store has an Unwrap method and forwards no optional interface itself.
type decorated struct {
	driver.Store
	_ []string // makes values of this type incomparable
}

func (d decorated) Unwrap() driver.Store { return d.Store }

// A bounding store implements two optional interfaces itself.
type bounding struct{ decorated }

func (bounding) MaxTTL() time.Duration { return time.Minute }

func (bounding) List(context.Context, string, int) ([]driver.LeaseInfo, error) { return nil, nil }

type opaque struct{ driver.Store }

// Through one or several wrappers, the innermost store provides what the wrappers do not implement.
// A wrapper's own methods take precedence.
//
// Fails when CapabilitiesOf looks only at the outermost store, or looks at the innermost store
// first.
func TestCapabilitiesOfAWrapper(t *testing.T) {
	store := memlock.New()
	for what, wrapped := range map[string]driver.Store{
		"one":   decorated{Store: store},
		"three": decorated{Store: &decorated{Store: decorated{Store: store}}},
	} {
		c := driver.CapabilitiesOf(wrapped)
		if c.Lister != driver.Lister(store) || c.Enumerator != driver.Enumerator(store) ||
			c.Controller != driver.Controller(store) || c.SharedLimiter != driver.SharedLimiter(store) ||
			c.Delayer != driver.Delayer(store) {
			t.Errorf("%s wrapper of a store in memory: %+v", what, c)
		}
		if c.Sharder != nil || c.Checker != nil || c.Auditor != nil || c.TTLBounder != nil ||
			c.SlotBounder != nil {
			t.Errorf("%s wrapper of a store in memory can do more than that one: %+v", what, c)
		}
	}
	c := driver.CapabilitiesOf(decorated{Store: bounding{decorated{Store: store}}})
	if _, ok := c.Lister.(bounding); !ok || c.TTLBounder == nil || c.TTLBounder.MaxTTL() != time.Minute {
		t.Errorf("the wrapper in between does not answer for itself: %+v", c)
	}
	if c.Enumerator != driver.Enumerator(store) {
		t.Errorf("the store behind both wrappers enumerates: %+v", c)
	}
	if c := driver.CapabilitiesOf(opaque{store}); c != (driver.Capabilities{}) {
		t.Errorf("a wrapper without Unwrap: %+v", c)
	}
}

// endless is a wrapper that wraps itself.
type endless struct{ driver.Store }

func (e *endless) Unwrap() driver.Store { return e }

// Fails when CapabilitiesOf has no limit, or does not check that Unwrap returned a store.
func TestCapabilitiesOfAnEndlessOrEmptyWrapper(t *testing.T) {
	for _, store := range []driver.Store{&endless{}, decorated{}, nil} {
		if c := driver.CapabilitiesOf(store); c != (driver.Capabilities{}) {
			t.Errorf("%T: %+v", store, c)
		}
	}
}
