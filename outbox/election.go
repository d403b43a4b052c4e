package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/lifecycle"
	"github.com/tickslot/tickslot/internal/loop"
	"github.com/tickslot/tickslot/leader"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// readLayout reads the layout. If want is not 0, it first sets the number of shards.
func (r *Relay) readLayout(want int) error {
	layout, err := call(r.calls, opLayout, func(ctx context.Context) (store.Layout, error) {
		return r.store.Layout(ctx, want)
	})
	if err != nil {
		return err
	}
	r.mu.Lock()
	changed := r.layout.Epoch != 0 && r.layout != layout
	r.layout = layout
	r.mu.Unlock()
	if changed {
		r.events.Log(slog.LevelInfo, "outbox: the number of shards has changed", "shards", layout.Shards, "epoch",
			layout.Epoch)
	}
	return nil
}

func (r *Relay) currentLayout() store.Layout {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.layout
}

// electAll takes part in the elections of the current layout, and then in the elections of each
// layout that replaces it.
func (r *Relay) electAll(ctx context.Context, session *dlock.Session) error {
	for ctx.Err() == nil {
		if err := r.elect(ctx, session, r.currentLayout()); err != nil {
			return err
		}
	}
	return nil
}

// elect takes part in the elections of the shards of a layout, until ctx ends or the layout
// changes.
func (r *Relay) elect(ctx context.Context, session *dlock.Session, layout store.Layout) error {
	electionCtx, end := context.WithCancel(ctx)
	defer end()
	errs := make([]error, layout.Shards)
	var electors sync.WaitGroup
	for i := range layout.Shards {
		electors.Go(func() {
			errs[i] = leader.Run(electionCtx, session, leader.Role{
				Name: roleOf(layout.Epoch), Max: layout.Shards, RetryInterval: r.config.RetryInterval,
				StopTimeout: r.config.DrainTimeout + 2*returnGrace, Logger: r.config.Logger,
				Run: func(ctx context.Context, t *leader.Term) error {
					err := r.lead(ctx, layout, t)
					if r.currentLayout() != layout {
						end() // do not lead again: other relays wait until no relay leads under the old layout
					}
					return err
				},
			})
			if errs[i] != nil {
				end() // Run returns the error, so the other elections must stop, too
			}
		})
	}
	electors.Go(func() {
		for r.currentLayout() == layout && lifecycle.Sleep(electionCtx, loop.Jittered(layoutInterval, idleJitter)) {
			_ = r.readLayout(0) // a failed call is counted and repeated at the next tick
		}
		end()
	})
	electors.Wait()
	return errors.Join(errs...)
}

// roleOf returns the name of the role for which relays compete. Each layout has its own name.
func roleOf(epoch int64) string { return fmt.Sprintf("%s:%d", roleName, epoch) }

// lead delivers the messages of a shard for one term.
func (r *Relay) lead(ctx context.Context, layout store.Layout, term *leader.Term) error {
	if !r.waitForOldLayouts(ctx, layout) {
		return nil
	}
	s := newShard(r, layout, term)
	r.mu.Lock()
	r.shards[term.Slot()] = s
	r.mu.Unlock()
	r.events.Log(slog.LevelInfo, "outbox: this relay now delivers a shard", "shard", term.Slot(), "shards",
		layout.Shards, "fence", term.Fence())
	defer func() {
		r.mu.Lock()
		delete(r.shards, term.Slot())
		r.mu.Unlock()
	}()
	s.run(ctx)
	if s.changed {
		_ = r.readLayout(0)
	}
	return nil
}

// waitForOldLayouts waits until no relay holds a shard of another layout, so that only one relay at
// a time delivers a key. It returns false if ctx ends first or the layout changes. While it waits,
// no relay can start to deliver under an old layout, because Due answers only under the current
// layout.
func (r *Relay) waitForOldLayouts(ctx context.Context, layout store.Layout) bool {
	prefix, own := "leader:"+roleName+":", "leader:"+roleOf(layout.Epoch)
	for {
		held, err := call(r.calls, opLocks, func(ctx context.Context) (bool, error) {
			return anyHeld(ctx, r.outbox.locks.get(), func(name string) bool {
				return strings.HasPrefix(name, prefix) && name != own
			})
		})
		if err == nil && !held {
			return true
		}
		// The layout may have changed, and other relays may wait for this one to stop leading.
		if _ = r.readLayout(0); r.currentLayout() != layout {
			return false
		}
		if !lifecycle.Sleep(ctx, loop.Jittered(min(r.config.RetryInterval, r.config.TTL/10), idleJitter)) {
			return false
		}
	}
}

// anyHeld reports whether any lock whose name which accepts is held.
func anyHeld(ctx context.Context, locks driver.Enumerator, which func(name string) bool) (bool, error) {
	after := ""
	for {
		page, err := locks.Enumerate(ctx, after, driver.MaxPage)
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(page.Leases, func(l driver.LeaseInfo) bool {
			return which(l.Name) && l.ReleasedAgo == 0
		}) {
			return true, nil
		}
		if after = page.Next; after == "" {
			return false, nil
		}
	}
}
