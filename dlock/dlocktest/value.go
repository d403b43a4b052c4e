package dlocktest

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

var keeping = []promise{
	{name: "value/kept as given", given: needsControl, show: valueKept},
	{name: "value/on no other answer", given: needsControl, show: valueIsNoOverride},
	{name: "value/one of two writers", given: needsControl, show: valueCompared},
	{name: "value/nonsense is refused", given: needsControl, show: valueChecked},
}

func (h *host) value(name string) driver.ValueState {
	ctx, cancel := callContext()
	defer cancel()
	v, err := h.controller().Value(ctx, name)
	if err != nil {
		h.c.note(2, "the value of %q: %v", name, err)
		panic(giveUp{})
	}
	return v
}

// set sets a value. It returns ErrChanged if the store does.
func (h *host) set(name, text string, version int64) error {
	ctx, cancel := callContext()
	defer cancel()
	err := h.controller().Update(ctx, name, driver.Update{Value: &driver.Value{Text: text, Version: version}})
	if err != nil && !errors.Is(err, driver.ErrChanged) {
		h.c.note(2, "setting a value of %d bytes: %v", len(text), err)
		panic(giveUp{})
	}
	return err
}

// valueKept catches a store that cuts a long value, or reads a part of one as something else, or
// that loses a value when it refuses a longer one.
func valueKept(c *check) {
	a, b := c.host(), c.host()
	if v := a.value("x"); v.Text != "" || v.Version != 0 || !v.At.IsZero() {
		c.errorf("the value of a name that was never updated: %+v", v)
	}
	var printable strings.Builder
	for r := ' '; r <= '~'; r++ {
		printable.WriteRune(r)
	}
	longest := strings.Repeat(printable.String(), driver.MaxValueLen/printable.Len()+1)[:c.h.LongestValue]
	var version int64
	var clock time.Time
	for _, text := range []string{"a", printable.String(), longest, "null", "", "0",
		`'; DROP TABLE locks; -- "\u0041\n" NULL %s {now} ?1 $1 @p1`} {
		if err := a.set("x", text, version); err != nil {
			c.fatalf("a value of %d bytes with the version that was read: %v", len(text), err)
		}
		v := b.value("x")
		if v.Text != text {
			c.errorf("a value of %d bytes came back as %d bytes, %.100q", len(text), len(v.Text), v.Text)
		}
		if v.Version <= version || v.At.Before(clock) || v.At.IsZero() {
			c.errorf("version %d at %v after %d at %v: must grow", v.Version, v.At, version, clock)
		}
		version, clock = v.Version, v.At
	}
	if c.h.LongestValue < driver.MaxValueLen {
		ctx, cancel := callContext()
		defer cancel()
		tooLong := driver.Value{Text: strings.Repeat("x", driver.MaxValueLen), Version: version}
		err := a.controller().Update(ctx, "x", driver.Update{Value: &tooLong})
		if !errors.Is(err, driver.ErrFault) {
			c.errorf("a value of %d bytes: %v: must be refused", driver.MaxValueLen, err)
		}
		if v := b.value("x"); v.Version != version || v.Text == tooLong.Text {
			c.errorf("version %d after a value that was refused: must be %d", v.Version, version)
		}
	}
	if v := b.value("xx"); v.Text != "" {
		c.errorf("another name has the value %.100q", v.Text)
	}
}

// valueIsNoOverride catches a store that loses a value in another update, or that refuses a name
// because it has a value.
func valueIsNoOverride(c *check) {
	a, b := c.host(), c.host()
	if err := a.set("x", "kept", 0); err != nil {
		c.fatalf("set: %v", err)
	}
	g := b.mustAcquire(c.request("x", 1))
	c.want("release", b.release(g.grant), driver.GrantOK)
	state := b.inspect("x")[0]
	if state.Pause != nil || state.Limit != nil || state.Trigger != nil {
		c.errorf("a value alone is told as %+v", state)
	}
	if v := b.value("x"); v.Version != state.Version || v.Version != g.grant.Info.Version {
		c.errorf("version %d of the value, %d of the overrides, %d with a grant: must be one", v.Version, state.Version,
			g.grant.Info.Version)
	}
	a.pauseFor("x", time.Hour)
	a.resume("x")
	if v := b.value("x"); v.Text != "kept" || v.Version <= state.Version {
		c.errorf("after another update: %q, version %d", v.Text, v.Version)
	}
	if err := a.set("x", "late", state.Version); !errors.Is(err, driver.ErrChanged) {
		c.errorf("set with the version before another update: %v", err)
	}
	// An update changes either all parts or none.
	ctx, cancel := callContext()
	defer cancel()
	err := a.controller().Update(ctx, "x", driver.Update{Limit: &driver.LimitOverride{Cause: ann, Slots: 3},
		Value: &driver.Value{Text: "late", Version: state.Version}})
	if after := b.inspect("x")[0]; !errors.Is(err, driver.ErrChanged) || after.Limit != nil {
		c.errorf("a limit with a value that was refused: %v, %+v", err, after)
	}
}

// valueCompared catches a store that compares and sets in two steps. If several writers have read
// the same version, only one may succeed.
func valueCompared(c *check) {
	const writers, rounds = 8, 5
	hosts := make([]*host, writers)
	for i := range hosts {
		hosts[i] = c.host()
	}
	version, text := int64(0), ""
	for range rounds {
		var won atomic.Int64
		var all sync.WaitGroup
		for i, h := range hosts {
			all.Go(func() {
				ctx, cancel := callContext()
				defer cancel()
				value := driver.Value{Text: string(rune('a' + i)), Version: version}
				switch err := h.controller().Update(ctx, "x", driver.Update{Value: &value}); {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, driver.ErrChanged):
					c.note(2, "a writer who is too late: %v", err)
				}
			})
		}
		all.Wait()
		v := hosts[0].value("x")
		if won.Load() != 1 || v.Version <= version || v.Text == "" {
			c.errorf("%d of %d writers with one version succeeded; version %d with %q after %d with %q", won.Load(),
				writers, v.Version, v.Text, version, text)
		}
		version, text = v.Version, v.Text
	}
	for _, wrong := range []int64{0, version - 1, version + 1} {
		if err := hosts[0].set("x", "wrong", wrong); !errors.Is(err, driver.ErrChanged) {
			c.errorf("set with version %d instead of %d: %v", wrong, version, err)
		}
	}
	if err := hosts[0].set("y", "wrong", version); !errors.Is(err, driver.ErrChanged) {
		c.errorf("set with a version under a name that has none: %v", err)
	}
	if v := hosts[1].value("y"); v.Text != "" {
		c.errorf("a value that was refused is there: %q", v.Text)
	}
}

func valueChecked(c *check) {
	h := c.host()
	ctx, cancel := callContext()
	defer cancel()
	for _, value := range []driver.Value{
		{Text: strings.Repeat("x", driver.MaxValueLen+1)}, {Text: "a\nb"}, {Text: "é"}, {Text: "\xff"}, {Text: "\x00"},
		{Text: "a", Version: -1},
	} {
		err := h.controller().Update(ctx, "x", driver.Update{Value: &value})
		if err == nil || errors.Is(err, driver.ErrChanged) {
			c.errorf("a value of %d bytes, version %d: %v", len(value.Text), value.Version, err)
		}
	}
	if _, err := h.controller().Value(ctx, "a:slot:b"); err == nil {
		c.errorf("the value of a name that no lock may have was read")
	}
	if v := h.value("x"); v.Version != 0 {
		c.errorf("values that were refused are there: %+v", v)
	}
}
