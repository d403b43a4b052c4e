package dlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/memlock"
)

// A decorated store is one that records calls, and forwards nothing itself.
type decorated struct {
	dlock.DistributedLock
	_ []string // so that values of this type cannot be compared
}

func (d decorated) Unwrap() dlock.DistributedLock { return d.DistributedLock }

// A bounding store also answers for itself.
type bounding struct{ decorated }

func (bounding) MaxTTL() time.Duration { return time.Minute }

func (bounding) List(context.Context, string, int) ([]dlock.LeaseInfo, error) { return nil, nil }

type opaque struct{ dlock.DistributedLock }

// What a wrapper does not implement is done by the store in it, however many wrappers there are.
// What it implements, it does.
//
// Fails when CapabilitiesOf looks at the outermost store only, or into the innermost first.
func TestCapabilitiesOfAWrapper(t *testing.T) {
	store := memlock.New()
	for what, wrapped := range map[string]dlock.DistributedLock{
		"one":   decorated{DistributedLock: store},
		"three": decorated{DistributedLock: &decorated{DistributedLock: decorated{DistributedLock: store}}},
	} {
		c := dlock.CapabilitiesOf(wrapped)
		if c.Lister != dlock.Lister(store) || c.Enumerator != dlock.Enumerator(store) ||
			c.Controller != dlock.Controller(store) || c.MultiLocker != dlock.MultiLocker(store) ||
			c.Delayer != dlock.Delayer(store) {
			t.Errorf("%s wrapper of a store in memory: %+v", what, c)
		}
		if c.Sharder != nil || c.Checker != nil || c.Auditor != nil || c.TTLBounder != nil {
			t.Errorf("%s wrapper of a store in memory can do more than that one: %+v", what, c)
		}
	}
	c := dlock.CapabilitiesOf(decorated{DistributedLock: bounding{decorated{DistributedLock: store}}})
	if _, ok := c.Lister.(bounding); !ok || c.TTLBounder == nil || c.TTLBounder.MaxTTL() != time.Minute {
		t.Errorf("the wrapper in between does not answer for itself: %+v", c)
	}
	if c.Enumerator != dlock.Enumerator(store) {
		t.Errorf("the store behind both wrappers enumerates: %+v", c)
	}
	if c := dlock.CapabilitiesOf(opaque{store}); c != (dlock.Capabilities{}) {
		t.Errorf("a wrapper without Unwrap: %+v", c)
	}
}

// endless is a wrapper of itself.
type endless struct{ dlock.DistributedLock }

func (e *endless) Unwrap() dlock.DistributedLock { return e }

// Fails when CapabilitiesOf has no bound, or does not look whether Unwrap returned a store.
func TestCapabilitiesOfAnEndlessOrEmptyWrapper(t *testing.T) {
	for _, store := range []dlock.DistributedLock{&endless{}, decorated{}, nil} {
		if c := dlock.CapabilitiesOf(store); c != (dlock.Capabilities{}) {
			t.Errorf("%T: %+v", store, c)
		}
	}
}
