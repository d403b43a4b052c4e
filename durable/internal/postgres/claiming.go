package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/internal/sqlkit"
)

const (
	// claimTries is how often a claim searches for runs if other sessions have locked all runs that
	// it finds.
	claimTries = 3
	// limitWait is how long a claim waits for the rows of limits, which other claims lock briefly.
	// If a row stays locked for longer, claims do not wait for such rows during the next limitSkip.
	// They then claim only runs whose limits are not locked.
	limitWait = 500 * time.Millisecond
	limitSkip = 2 * time.Second
)

// Claim implements store.Worker.
func (s *Store) Claim(ctx context.Context, r store.ClaimRequest) (claimed store.Claimed, err error) {
	slack := s.slack.Load()
	for try := range claimTries {
		behind := s.behind.Load()
		next, isShort, err := s.claimLimited(ctx, r, slack)
		if err != nil && len(claimed.Runs) > 0 {
			return claimed, nil // these runs are already claimed
		}
		if err != nil {
			return claimed, err
		}
		next.Runs = append(claimed.Runs, next.Runs...)
		claimed = next
		r.Limit -= len(next.Runs)
		switch {
		case isShort:
			slack = min(claimWider*slack, maxClaimSlack)
			s.slack.Store(slack)
			continue
		case r.Limit > 0 && (behind != noneBehind || s.behind.Load() != noneBehind):
			continue // look at the remaining partitions
		case try == 0: // a smaller slack may be enough
			s.slack.CompareAndSwap(slack, max(claimSlack, slack/2))
		}
		break
	}
	return claimed, nil
}

// claimLimited first waits for the rows of the limits and then claims. If a row was recently locked
// for too long, it does not wait.
func (s *Store) claimLimited(ctx context.Context, r store.ClaimRequest, slack int64) (claimed store.Claimed,
	isShort bool, err error) {
	began := time.Now().UnixNano()
	until := s.skipUntil.Load()
	if began >= until {
		claimed, isShort, err = s.claimOnce(ctx, r, slack, s.texts["claim_lock_and_wait"], limitWait)
		if sqlkit.State(err) != sqlkit.LockNotAvailable {
			return claimed, isShort, err
		}
		until = time.Now().Add(limitSkip).UnixNano()
		s.skipUntil.Store(until)
	}
	claimed, isShort, err = s.claimOnce(ctx, r, slack, s.texts["claim_lock"], 0)
	if err == nil && len(claimed.Locked) == 0 {
		s.skipUntil.CompareAndSwap(until, 0)
	}
	return claimed, isShort, err
}

// claimOnce claims in one call. isShort reports that there may be due runs that the claim has not
// read.
func (s *Store) claimOnce(ctx context.Context, r store.ClaimRequest, slack int64, lock string, wait time.Duration) (
	claimed store.Claimed, isShort bool, err error) {
	handlers := handlersJSON(r.Handlers)
	behind := s.behind.Load().(string)
	next := behind
	args := []any{handlers, r.MaxActive, max(0, r.Limit), guard.Storable(r.Worker), r.TTL.Microseconds(),
		store.NewClaim(), slack, store.MaxClaimedBytes, behind, r.Patience.Microseconds(),
		store.WorkerKey(r.Worker)}
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)/2)
	}
	err = s.call(ctx, s.owned, func() []statement {
		claimed = store.Claimed{}
		return []statement{
			{lock, []any{handlers, r.MaxActive, wait.Milliseconds()}, func(rows pgx.Rows) error {
				var name string
				err := rows.Scan(&name)
				claimed.Locked = append(claimed.Locked, name)
				return err
			}},
			{text: s.texts["claim_share"], args: []any{s.claimLock}},
			{s.texts["claim"], args, func(rows pgx.Rows) error {
				var run store.Run
				err := scanRun(rows, &run, into(&claimed.Now), into(&claimed.Next), into(&claimed.More),
					into(&claimed.Held), into(&isShort), into(&next))
				if run.ID != 0 { // otherwise the row has only the times
					claimed.Runs = append(claimed.Runs, run)
				}
				return err
			}},
		}
	})
	if err == nil {
		s.behind.CompareAndSwap(behind, next)
	}
	return claimed, isShort, err
}

// reclaimedError is the stored error of an attempt whose lease has expired.
const reclaimedError = "the lease expired: the worker has stopped, hangs, or had no database"

// Reclaim implements store.Worker.
func (s *Store) Reclaim(ctx context.Context, limit, maxCrashes int) (reclaimed []store.Reclaimed, err error) {
	err = s.call(ctx, s.owned, func() []statement {
		reclaimed = nil
		args := []any{max(0, limit), reclaimedError, maxCrashes}
		return []statement{{s.texts["reclaim"], args, func(rows pgx.Rows) error {
			var r store.Reclaimed
			err := rows.Scan(into(&r.ID), into(&r.Attempt), into(&r.Claim), into(&r.MaxAttempts), into(&r.Crashes),
				into(&r.Handler), into(&r.Worker), into(&r.Schedule), into(&r.Dead), into(&r.Canceled))
			reclaimed = append(reclaimed, r)
			return err
		}}}
	})
	return reclaimed, err
}

// Sweep implements store.Worker.
func (s *Store) Sweep(ctx context.Context, r store.Retention, limit int) (deleted int, err error) {
	kept := func(d time.Duration) *int64 {
		if d <= 0 {
			return nil
		}
		us := d.Microseconds()
		return &us
	}
	err = s.call(ctx, s.owned, func() []statement {
		args := []any{kept(r.Succeeded), kept(r.Dead), kept(r.Canceled), kept(r.Unseen), max(0, limit)}
		return []statement{{s.texts["sweep"], args, func(rows pgx.Rows) error { return rows.Scan(into(&deleted)) }}}
	})
	return deleted, err
}
