package cluster

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
)

// Decorate wraps a store of locks so that the registry also records which leases this process
// acquires, renews and loses. Use it for stores that cannot list their leases (native locks,
// Redlock, your own), and to get events from any store. Pass the result to dlock.NewSession or
// timer.Config.Store.
//
// Decorate does not affect the locks: it returns the store's answers unchanged and neither adds nor
// delays calls, and a failing registry does not affect them. driver.CapabilitiesOf looks through
// it. Leases are written with the next heartbeat. New leases are written within about a second,
// except for kinds that are acquired very often: timers, limits, hosts, probes and triggers.
//
// If lock is Config.Locks and can list its leases, Decorate records only events.
func (r *Registry) Decorate(lock dlock.DistributedLock) dlock.DistributedLock {
	if lock == nil {
		return nil
	}
	d := &decorated{inner: lock, pending: r.pending, holder: r.config.Holder,
		userKinds: r.config.Kind != nil}
	if r.listing.lists(lock) {
		d.listing = r.listing
	}
	return d
}

// A decorated store adds the beginning, the changes and the end of leases to pending. It has no
// state of its own.
type decorated struct {
	inner   dlock.DistributedLock
	pending *pending
	listing *listing     // nil if Snapshot does not list the leases of this store
	holder  dlock.Holder // of the registry

	userKinds bool // Config.Kind is set
}

// Unwrap returns the store that was decorated.
func (d *decorated) Unwrap() dlock.DistributedLock { return d.inner }

// String returns the name of the decorated store.
func (d *decorated) String() string {
	if s, ok := d.inner.(fmt.Stringer); ok {
		return s.String()
	}
	return fmt.Sprintf("%T", d.inner)
}

// TryAcquire implements dlock.DistributedLock.
func (d *decorated) TryAcquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	sent := time.Now()
	g, err := d.inner.TryAcquire(ctx, req)
	if err == nil {
		d.acquired(req, g, sent)
	}
	return g, err
}

// Extend implements dlock.DistributedLock.
func (d *decorated) Extend(ctx context.Context, ttl time.Duration, grants ...driver.Grant) ([]driver.Result, error) {
	sent := time.Now()
	results, err := d.inner.Extend(ctx, ttl, grants...)
	if err == nil && len(results) == len(grants) {
		d.extended(ttl, grants, results, sent)
	}
	return results, err
}

// Release implements dlock.DistributedLock.
func (d *decorated) Release(ctx context.Context, grants ...driver.Grant) ([]driver.Result, error) {
	results, err := d.inner.Release(ctx, grants...)
	if err == nil && len(results) == len(grants) {
		d.released(grants, results)
	}
	return results, err
}

// recordsEvents reports whether acquiring and releasing a lock causes events. A lock without a kind
// may be acquired very often, so it causes none unless Config.Kind gives it a kind. The writer
// calls Config.Kind, because that function may be slow.
func (d *decorated) recordsEvents(name string) bool {
	if kind := KindOf(name); kind != "" {
		return !frequent(kind)
	}
	return d.userKinds
}

// recordsLeases reports whether the registry must write the leases of this store.
func (d *decorated) recordsLeases() bool { return d.listing == nil || !d.listing.works() }

func (d *decorated) acquired(req driver.Request, g driver.Grant, sent time.Time) {
	defer func() { _ = recover() }() // a failure here must not affect the granted lock
	d.acquiredOne(req, g, sent)
	for _, shared := range g.Shared {
		d.acquiredOne(req, shared, sent)
	}
}

func (d *decorated) acquiredOne(req driver.Request, g driver.Grant, sent time.Time) {
	if driver.CheckName(g.Name) != nil { // the store returned an invalid name, which the session rejects
		return
	}
	holder := cleanHolder(req.Holder)
	d.pending.addLease(pendingLease{
		record: LeaseRecord{Name: g.Name, Slots: g.Slots, Slot: g.Slot, Holder: holder, Fence: g.Fence,
			Grant: grantOf(g.Token)},
		acquiredAt: sent, renewedAt: sent, expiresAt: sent.Add(req.TTL), listed: d.listing != nil,
	}, d.recordsLeases() && !frequent(KindOf(g.Name)))
	if g.PreviousExpired { // the previous holder is unknown here
		d.pending.addEvent(eventOf(EventExpired, dlock.Holder{}, g, "found by "+holder.String()), sent)
	}
	if d.recordsEvents(g.Name) {
		d.pending.addEvent(eventOf(EventAcquired, holder, g, ""), sent)
	}
}

func (d *decorated) extended(ttl time.Duration, grants []driver.Grant, results []driver.Result, sent time.Time) {
	defer func() { _ = recover() }()
	for i, res := range results {
		switch g := grants[i]; {
		case res.Outcome == driver.GrantOK:
			d.pending.update(keyOf(g.Name, g.Slots, g.Slot), grantOf(g.Token), leaseRenewed, sent, sent.Add(ttl))
		case res.Outcome == driver.GrantLost && res.RevokedBy != nil:
			d.lost(EventRevoked, g, sent, res.RevokedBy.String())
		case res.Outcome == driver.GrantLost:
			d.lost(EventLost, g, sent, "")
		}
	}
}

func (d *decorated) released(grants []driver.Grant, results []driver.Result) {
	defer func() { _ = recover() }()
	for i, res := range results {
		g := grants[i]
		switch {
		case g.Slot == driver.AnySlot: // the attempt's reply was lost, so there may be no grant
		case res.Outcome == driver.GrantLost:
			d.lost(EventLost, g, time.Now(), "found when it was released")
		case res.Outcome == driver.GrantOK:
			now := time.Now()
			key := keyOf(g.Name, g.Slots, g.Slot)
			holder, changed := d.pending.update(key, grantOf(g.Token), leaseReleased, now, now)
			if changed && d.recordsEvents(g.Name) {
				d.pending.addEvent(eventOf(EventReleased, cmp.Or(holder, d.holder), g, ""), now)
			}
		}
	}
}

func (d *decorated) lost(kind EventKind, g driver.Grant, at time.Time, text string) {
	holder, changed := d.pending.update(keyOf(g.Name, g.Slots, g.Slot), grantOf(g.Token), leaseLost, at, at)
	if changed {
		d.pending.addEvent(eventOf(kind, cmp.Or(holder, d.holder), g, text), at)
	}
}
