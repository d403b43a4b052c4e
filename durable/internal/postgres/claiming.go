package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickslot/tickslot/durable/internal/store"
)

// claimTries is how often a claim is tried if there are runs to claim, but others are claiming the
// same ones at the same moment.
const claimTries = 3

// Claim implements store.Worker.
func (s *Store) Claim(ctx context.Context, r store.ClaimRequest) (claimed store.Claimed, err error) {
	handlers := handlersJSON(r.Handlers)
	args := []any{handlers, r.MaxActive, max(0, r.Limit), storable(r.Worker), r.TTL.Microseconds()}
	for range claimTries {
		var candidates int
		err = s.call(ctx, s.owned, func() []statement {
			claimed, candidates = store.Claimed{}, 0
			return []statement{
				{text: s.texts["claim_lock"], args: []any{handlers, r.MaxActive}},
				{s.texts["claim"], args, func(rows pgx.Rows) error {
					var run store.Run
					err := scanRun(rows, &run, into(&claimed.Now), into(&claimed.Next), into(&candidates))
					if run.ID != 0 { // else it is the row of the times, without a run
						claimed.Runs = append(claimed.Runs, run)
					}
					return err
				}},
			}
		})
		if err != nil || len(claimed.Runs) > 0 || candidates == 0 {
			break
		}
	}
	return claimed, err
}

// reclaimedError is what is noted of an attempt whose lease has expired.
const reclaimedError = "the lease expired: the worker has stopped, hangs, or had no database"

// Reclaim implements store.Worker.
func (s *Store) Reclaim(ctx context.Context, limit int) (reclaimed []store.Reclaimed, err error) {
	err = s.call(ctx, s.owned, func() []statement {
		reclaimed = nil
		return []statement{{s.texts["reclaim"], []any{max(0, limit), reclaimedError}, func(rows pgx.Rows) error {
			var r store.Reclaimed
			err := rows.Scan(into(&r.ID), into(&r.Attempt), into(&r.MaxAttempts), into(&r.Handler), into(&r.Worker),
				into(&r.Schedule), into(&r.Dead), into(&r.Canceled))
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
