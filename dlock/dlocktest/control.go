package dlocktest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/testkit"
)

var controlling = []promise{
	{name: "control/stated", show: controlStated},
	{name: "control/a paused name grants nothing", given: needsControl, show: paused},
	{name: "control/a pause ends by itself", given: needsControl, show: pauseEnds},
	{name: "control/a pause leaves leases alone", given: needsControl, show: pauseLeavesLeases},
	{name: "control/a limit that was raised", given: needsControl, show: limitRaised},
	{name: "control/a limit that was lowered", given: needsControl, show: limitLowered},
	{name: "control/a limit of nothing", given: needsControl, show: limitZero},
	{name: "control/every answer tells of them", given: needsControl, show: updatesTold},
	{name: "control/read back as given", given: needsControl, show: updatesRead},
	{name: "control/outlive the use of the name", given: needsControl, show: updatesStay},
	{name: "control/are their name's own", given: needsControl, show: updatesApart},
	{name: "control/a trigger has one instant", given: needsControl, show: triggerInstant},
	{name: "control/nonsense is refused", given: needsControl, show: updatesChecked},
	{name: "control/who has a tick", given: needsControl, show: tickHolder},
	{name: "revoke/the holder is told", given: needsControl, show: revokeTold},
	{name: "revoke/the slot stays taken", given: needsControl, show: revokeKeepsSlot},
	{name: "revoke/ends with its lease", given: needsControl, show: revokeEnds},
	{name: "revoke/the lease that is meant", given: needsControl, show: revokeFence},
}

func needsControl(f Features) string {
	if !f.Control {
		return "the store does not state Control"
	}
	return ""
}

func controlStated(c *check) {
	if ok := c.host().caps().Controller != nil; ok != c.h.Features.Control {
		c.errorf("the store is a driver.Controller: %t, and states Control: %t", ok, c.h.Features.Control)
	}
}

// ann is the cause of updates. The store must return its text unchanged and must never execute it.
var ann = driver.Cause{By: `ann "the 'op'" <a@b> %s {0} $1 \ é`,
	Note: `"revoked":{"by":"x"}, '); DROP TABLE locks; -- 数据库 %d\n`}

func (h *host) controller() driver.Controller {
	ctl := h.caps().Controller
	if ctl == nil {
		h.c.fatalf("the store states Control and is no driver.Controller")
	}
	return ctl
}

func (h *host) update(name string, change driver.Update) {
	ctx, cancel := callContext()
	defer cancel()
	if err := h.controller().Update(ctx, name, change); err != nil {
		h.c.note(2, "update of %q: %v", name, err)
		panic(giveUp{})
	}
}

func (h *host) pauseFor(name string, d time.Duration) {
	h.update(name, driver.Update{Pause: &driver.Pause{Cause: ann, For: d}})
}

func (h *host) resume(name string) {
	h.update(name, driver.Update{Resume: &ann})
}

// limit sets a limit; requested resets it.
func (h *host) limit(name string, slots int) {
	if slots == requested {
		h.resetLimit(name)
		return
	}
	h.update(name, driver.Update{Limit: &driver.LimitOverride{Cause: ann, Slots: slots}})
}

// requested, in a list of limits, stands for no limit override.
const requested = -1

func (h *host) resetLimit(name string) {
	h.update(name, driver.Update{ResetLimit: &ann})
}

func (h *host) inspect(names ...string) []driver.ControlState {
	ctx, cancel := callContext()
	defer cancel()
	list, err := h.controller().Inspect(ctx, names...)
	if err != nil || len(list) != len(names) {
		h.c.note(2, "overrides of %q: %d, %v", names, len(list), err)
		panic(giveUp{})
	}
	for i, o := range list {
		if o.Name != names[i] {
			h.c.note(2, "overrides of %q: the answer speaks of %q", names[i], o.Name)
		}
	}
	return list
}

// paused catches a store that grants a paused name or does not say why it refuses.
func paused(c *check) {
	a, b := c.host(), c.host()
	a.pauseFor("x", time.Hour)
	for _, slots := range []int{1, 3} {
		for _, h := range []*host{a, b} {
			no := h.mustRefuse(c.request("x", slots), driver.ReasonPaused)
			if no.PausedBy != ann {
				c.errorf("paused %+v: must be %+v", no.PausedBy, ann)
			}
			if no.ExpiresIn <= time.Hour-time.Minute || no.ExpiresIn > time.Hour {
				c.errorf("paused for another %v: must be just under an hour", no.ExpiresIn)
			}
		}
	}
	if c.h.Features.AtomicTick {
		b.mustRefuse(c.tick("x", 1, thisSecond(), 1), driver.ReasonPaused)
	}
	a.pauseFor("x", 2*time.Hour) // a second pause replaces the first
	if no := b.mustRefuse(c.request("x", 1), driver.ReasonPaused); no.ExpiresIn < time.Hour {
		c.errorf("paused anew for 2 h: %v left", no.ExpiresIn)
	}
	b.resume("x")
	g := a.mustAcquire(c.request("x", 1))
	c.want("release", a.release(g.grant), driver.GrantOK)
	if c.h.Features.AtomicTick { // a refused tick is not used up
		b.mustAcquire(c.tick("x", 1, thisSecond(), 1))
	}
	b.resume("x") // no effect, because the name is not paused
}

func pauseEnds(c *check) {
	a, b := c.host(), c.host()
	sent := time.Now()
	a.pauseFor("x", c.h.TTL)
	got := time.Now()
	var last attempt
	err := testkit.Poll(time.Until(got.Add(c.h.TTL+c.h.Slack))+c.step(), "a grant", func() error {
		last = b.try(c.request("x", 2))
		return last.err
	})
	if err != nil {
		c.fatalf("paused for %v, and %v later still: %v", c.h.TTL, last.got.Sub(got), last.err)
	}
	if last.got.Before(sent.Add(c.h.TTL)) {
		c.errorf("paused for %v, and granted %v later", c.h.TTL, last.got.Sub(sent))
	}
	if p := b.inspect("x")[0].Pause; p != nil {
		c.errorf("a pause that is over is told: %+v", p)
	}
}

// pauseLeavesLeases catches a pause that ends held leases.
func pauseLeavesLeases(c *check) {
	h := c.host()
	g := h.mustAcquire(c.request("x", 2)).grant
	h.pauseFor("x", time.Hour)
	c.want("extend", h.extend(c.long, g), driver.GrantOK)
	c.want("release", h.release(g), driver.GrantOK)
}

func limitRaised(c *check) {
	a, b := c.host(), c.host()
	a.limit("x", 3)
	seen := make(map[int]bool)
	for range 3 {
		g := b.mustAcquire(c.request("x", 1))
		if g.grant.Info.SlotLimit != 3 {
			c.errorf("a grant tells of a limit of %d: must be 3", g.grant.Info.SlotLimit)
		}
		seen[g.grant.Slot] = true
		c.want("extend", a.extend(c.long, g.grant), driver.GrantOK)
	}
	if len(seen) != 3 || !seen[0] || !seen[1] || !seen[2] {
		c.errorf("slots %v: must be 0, 1 and 2", seen)
	}
	if no := a.mustRefuse(c.request("x", 1), driver.ReasonFull); no.Info.SlotLimit != 3 {
		c.errorf("a refusal tells of a limit of %d: must be 3", no.Info.SlotLimit)
	}
	a.limit("x", 4)
	g := a.mustAcquire(c.request("x", 1))
	c.want("release", b.release(g.grant), driver.GrantOK)
	a.resetLimit("x")
	if no := a.mustRefuse(c.request("x", 1), driver.ReasonFull); no.Info.SlotLimit != 0 {
		c.errorf("a limit of %d is told, after it was taken back: must be 0", no.Info.SlotLimit)
	}
}

// limitLowered catches a store that grants a low slot while more leases than the limit are held:
// one more would then be held instead of one less. It also catches a store that looks only below
// the limit for the lease that ends first.
func limitLowered(c *check) {
	a, b := c.host(), c.host()
	for _, free := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
		name := fmt.Sprint("x", free)
		grants := a.fill(name, 3)
		b.limit(name, 1)
		for _, i := range free {
			no := b.mustRefuse(c.request(name, 3), driver.ReasonFull)
			if c.h.Features.Holders && no.Holder == (driver.Holder{}) {
				c.errorf("a refusal by the limit names no holder")
			}
			c.want("extend", a.extend(c.long, grants[i]), driver.GrantOK)
			c.want("release", a.release(grants[i]), driver.GrantOK)
		}
		one := b.mustAcquire(c.request(name, 3))
		if one.grant.Slot != 0 {
			c.errorf("slot %d within a limit of 1", one.grant.Slot)
		}
		a.mustRefuse(c.request(name, 3), driver.ReasonFull)
	}
	held := a.endingFromTheTop("y")
	b.limit("y", 2) // counts leases in any slots
	no := b.mustRefuse(c.request("y", 3), driver.ReasonFull)
	if last := held[2].req.Holder; c.h.Features.Holders && no.Holder != last {
		c.errorf("under a limit of 2, the refusal names %v: must name %v, whose lease ends first", no.Holder, last)
	}
	if text := no.Error(); !strings.Contains(text, "all 2 slots") {
		c.errorf("under a limit of 2, the refusal says %q: must say that all 2 slots are held", text)
	}
}

func limitZero(c *check) {
	a, b := c.host(), c.host()
	a.limit("x", 0)
	no := b.mustRefuse(c.request("x", 3), driver.ReasonPaused)
	if no.PausedBy != ann || no.ExpiresIn != 0 {
		c.errorf("a limit of 0: %+v for %v: must be %+v without an end", no.PausedBy, no.ExpiresIn, ann)
	}
	a.limit("x", 2)
	b.mustAcquire(c.request("x", 3))
	b.mustAcquire(c.request("x", 3))
	b.mustRefuse(c.request("x", 3), driver.ReasonFull)
}

func updatesTold(c *check) {
	a, b := c.host(), c.host()
	g := a.mustAcquire(c.request("x", 1)).grant
	if v := g.Info.Version; v != 0 {
		c.errorf("version %d before any update: must be 0", v)
	}
	var last int64
	for _, change := range []driver.Update{
		{}, {Pause: &driver.Pause{Cause: ann, For: time.Minute}}, {Resume: &ann},
		{Limit: &driver.LimitOverride{Cause: ann, Slots: 1}}, {Trigger: &ann}, {ResetLimit: &ann},
	} {
		b.update("x", change)
		refusal := b.try(c.request("x", 1))
		version := refusal.info().Version
		if version <= last {
			c.errorf("version %d after %d, with a refusal after %+v: must grow", version, last, change)
		}
		if v := a.extend(c.long, g)[0].Info.Version; v != version {
			c.errorf("an extension tells version %d: must be %d", v, version)
		}
		if v := b.inspect("x")[0].Version; v != version {
			c.errorf("Inspect tells version %d: must be %d", v, version)
		}
		last = version
	}
	a.release(g)
	if v := b.mustAcquire(c.request("x", 1)).grant.Info.Version; v != last {
		c.errorf("a grant tells version %d: must be %d", v, last)
	}
}

func updatesRead(c *check) {
	a, b := c.host(), c.host()
	bob := driver.Cause{By: "bob"}
	longest := driver.Cause{By: strings.Repeat("é", driver.MaxCauseLen/2),
		Note: strings.Repeat("n", driver.MaxCauseLen)}
	a.update("all", driver.Update{Pause: &driver.Pause{Cause: ann, For: time.Hour},
		Limit: &driver.LimitOverride{Cause: bob, Slots: 7}, Trigger: &longest})
	a.update("part", driver.Update{Limit: &driver.LimitOverride{Cause: longest, Slots: 0}})
	list := b.inspect("all", "none", "part", "all")
	for _, i := range []int{0, 3} {
		o := list[i]
		if o.Pause == nil || o.Pause.Cause != ann || o.Pause.For <= 59*time.Minute || o.Pause.For > time.Hour {
			c.errorf("pause %+v: must be %+v for about an hour", o.Pause, ann)
		}
		if o.Limit == nil || *o.Limit != (driver.LimitOverride{Cause: bob, Slots: 7}) {
			c.errorf("limit %+v: must be 7 by bob", o.Limit)
		}
		if o.Trigger == nil || o.Trigger.Cause != longest || o.Trigger.Age < 0 || o.Trigger.Age > time.Minute {
			c.errorf("trigger %+v: must have the longest origin", o.Trigger)
		}
	}
	if o := list[1]; o != (driver.ControlState{Name: "none"}) {
		c.errorf("overrides of a name that has none: %+v", o)
	}
	if o := list[2]; o.Pause != nil || o.Trigger != nil || o.Limit == nil ||
		*o.Limit != (driver.LimitOverride{Cause: longest}) {
		c.errorf("overrides %+v: must be a limit of 0 and nothing else", o)
	}
	// Each part is changed separately.
	b.update("all", driver.Update{ResetLimit: &ann})
	if o := a.inspect("all")[0]; o.Limit != nil || o.Pause == nil || o.Trigger == nil {
		c.errorf("after the limit was taken back: %+v", o)
	}
	b.update("all", driver.Update{Resume: &ann})
	if o := a.inspect("all")[0]; o.Pause != nil || o.Trigger == nil {
		c.errorf("after it was resumed: %+v", o)
	}
}

func updatesStay(c *check) {
	a, b := c.host(), c.host()
	a.limit("x", 1)
	for range 3 {
		g := b.mustAcquire(c.request("x", 3))
		a.mustRefuse(c.request("x", 3), driver.ReasonFull)
		c.want("release", b.release(g.grant), driver.GrantOK)
	}
}

func updatesApart(c *check) {
	h := c.host()
	h.pauseFor("x", time.Hour)
	h.mustAcquire(c.request("xx", 1))
	h.mustAcquire(c.request("y", 3))
	h.mustAcquire(c.request("x", 0)) // the mutex of that name is a different lock
	h.mustRefuse(c.request("x", 1), driver.ReasonPaused)
}

func triggerInstant(c *check) {
	a, b := c.host(), c.host()
	before := time.Now()
	a.update("x", driver.Update{Trigger: &ann})
	first := b.inspect("x")[0].Trigger
	if first == nil || first.Cause != ann {
		c.fatalf("trigger %+v", first)
	}
	if ago := time.Since(before); first.Age < 0 || first.Age > ago+c.h.Slack {
		c.errorf("triggered %v ago: must be at most %v", first.Age, ago)
	}
	a.limit("x", 2)
	if again := b.inspect("x")[0].Trigger; again == nil || !again.At.Equal(first.At) {
		c.errorf("the instant of a trigger was %v and is %+v", first.At, again)
	}
	c.pause()
	b.update("x", driver.Update{Trigger: &ann})
	second := a.inspect("x")[0].Trigger
	if second == nil || !second.At.After(first.At) {
		c.errorf("a second trigger %+v: must be later than %v", second, first.At)
	}
	if c.h.Features.AtomicTick { // the trigger's instant can be claimed
		a.mustAcquire(c.tick("claim", 0, second.At, 1))
		b.mustRefuse(c.tick("claim", 0, second.At, 1), driver.ReasonTickTaken)
		b.mustRefuse(c.tick("claim", 0, first.At, 1), driver.ReasonTickLate)
	}
}

func updatesChecked(c *check) {
	h := c.host()
	ctx, cancel := callContext()
	defer cancel()
	ctl := h.controller()
	for _, change := range []driver.Update{
		{Pause: &driver.Pause{For: time.Hour}},
		{Pause: &driver.Pause{Cause: ann, For: driver.MaxPause + 1}},
		{Limit: &driver.LimitOverride{Cause: ann, Slots: driver.MaxSlots + 1}},
		{Limit: &driver.LimitOverride{Slots: 1}},
		{Limit: &driver.LimitOverride{Cause: ann, Slots: -1}},
		{Pause: &driver.Pause{Cause: ann}},
		{Pause: &driver.Pause{Cause: ann, For: -1}},
		{Resume: &driver.Cause{}},
		{ResetLimit: &driver.Cause{}},
		{Pause: &driver.Pause{Cause: ann, For: time.Hour}, Resume: &ann},
		{Limit: &driver.LimitOverride{Cause: ann, Slots: 1}, ResetLimit: &ann},
		{Trigger: &driver.Cause{By: "x", Note: "a\nb"}},
		{Trigger: &driver.Cause{By: strings.Repeat("x", driver.MaxCauseLen+1)}},
		{Trigger: &driver.Cause{By: "\xff"}},
	} {
		if err := ctl.Update(ctx, "x", change); err == nil {
			c.errorf("%+v was accepted", change)
		}
	}
	if err := ctl.Update(ctx, "a:slot:b", driver.Update{}); err == nil {
		c.errorf("an update of a name that no lock may have was accepted")
	}
	if err := ctl.Revoke(ctx, "x", 0, 1, driver.Cause{}); err == nil || errors.Is(err, driver.ErrNotHeld) {
		c.errorf("revoked by nobody: %v", err)
	}
	if o := h.inspect("x")[0]; o != (driver.ControlState{Name: "x"}) {
		c.errorf("updates that were refused are there: %+v", o)
	}
}

// tickHolder catches a store that does not say which host claimed a tick.
func tickHolder(c *check) {
	if !c.h.Features.AtomicTick {
		return
	}
	a, b := c.host(), c.host()
	at := thisSecond()
	first, second := c.tick("x", 3, at, 2), c.tick("x", 3, at, 2)
	a.mustAcquire(first)
	a.release(a.mustAcquire(second).grant)
	if no := b.mustRefuse(c.tick("x", 3, at, 2), driver.ReasonTickTaken); no.Holder != second.Holder {
		c.errorf("the tick was taken by %v: must be %v", no.Holder, second.Holder)
	}
	if o := b.inspect("x")[0]; !o.LastTick.Equal(at) || o.ClaimedBy != second.Holder {
		c.errorf("the last tick %v of %v: must be %v of %v", o.LastTick, o.ClaimedBy, at, second.Holder)
	}
}
