package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/guard"
	"github.com/tickslot/tickslot/internal/sqlkit"
)

type keyJSON struct {
	ID      int64 `json:"id"`
	Attempt int   `json:"attempt"`
	Claim   int64 `json:"claim"`
}

// Renew implements store.Worker. It first renews the leases whose rows are not locked, and then
// waits for the locked rows. If that takes too long, it gives up their runs. The call does not fail
// then, even if there was no other run, because a worker whose renewals fail claims nothing.
func (s *Store) Renew(ctx context.Context, worker string, runs []store.RunKey, ttl time.Duration) (
	renewed []store.Renewed, err error) {
	text, waiting := s.texts["renew"], false
	for ; len(runs) > 0; text, waiting = s.texts["renew_and_wait"], true {
		keys := make([]keyJSON, len(runs))
		for i, key := range runs {
			keys[i] = keyJSON(key)
		}
		var sure []store.Renewed
		var unsure []store.RunKey
		err := s.call(ctx, s.owned, func() []statement {
			sure, unsure = nil, nil
			args := []any{inJSON(keys), guard.Storable(worker), ttl.Microseconds()}
			return []statement{{text, args, func(rows pgx.Rows) error {
				var r store.Renewed
				var isSure bool
				var canceledBy *string
				err := rows.Scan(into(&r.ID), into(&r.Attempt), into(&r.Claim), into(&isSure), &canceledBy,
					into(&r.By.Note))
				if canceledBy != nil {
					r.Canceled, r.By.By = true, *canceledBy
				}
				if isSure {
					sure = append(sure, r)
				} else {
					unsure = append(unsure, r.RunKey)
				}
				return err
			}}}
		})
		if waiting && sqlkit.State(err) == sqlkit.LockNotAvailable {
			return renewed, nil
		}
		if err != nil {
			return nil, err
		}
		renewed, runs = append(renewed, sure...), unsure
	}
	return renewed, ctx.Err()
}

type resultJSON struct {
	keyJSON
	Outcome store.Outcome `json:"outcome"`
	State   store.State   `json:"state"`
	Error   string        `json:"error"`
	RetryIn int64         `json:"retry_in"`
	Took    int64         `json:"took"`
}

// Finish implements store.Worker.
func (s *Store) Finish(ctx context.Context, worker string, results []store.Result) (done store.Finished, err error) {
	if len(results) == 0 {
		return done, ctx.Err()
	}
	list := make([]resultJSON, len(results))
	for i, r := range results {
		list[i] = resultJSON{keyJSON(r.RunKey), r.Outcome, r.State, guard.Storable(r.Error),
			max(0, r.RetryIn.Microseconds()), r.Took.Microseconds()}
	}
	err = s.call(ctx, s.owned, func() []statement {
		done = store.Finished{}
		return []statement{{s.texts["finish"], []any{inJSON(list), guard.Storable(worker)}, func(rows pgx.Rows) error {
			var key store.RunKey
			var isSure bool
			err := rows.Scan(into(&key.ID), into(&key.Attempt), into(&key.Claim), into(&isSure))
			if isSure {
				done.Counted = append(done.Counted, key)
			} else {
				done.Locked = append(done.Locked, key)
			}
			return err
		}}}
	})
	if err != nil {
		return store.Finished{}, err
	}
	return done, nil
}
