package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/sqlkit"
)

type keyJSON struct {
	ID      int64 `json:"id"`
	Attempt int   `json:"attempt"`
}

// Renew implements store.Worker. A row that somebody keeps locked does not keep the other leases
// from being renewed: it is waited for afterwards, and if that takes too long the run is given up.
func (s *Store) Renew(ctx context.Context, worker string, runs []store.RunKey, lease time.Duration) (
	renewed []store.Renewed, err error) {
	for text := s.texts["renew"]; len(runs) > 0; text = s.texts["renew and wait"] {
		keys := make([]keyJSON, len(runs))
		for i, key := range runs {
			keys[i] = keyJSON(key)
		}
		var sure []store.Renewed
		var unsure []store.RunKey
		err := s.call(ctx, s.owned, func() []statement {
			sure, unsure = nil, nil
			args := []any{inJSON(keys), storable(worker), lease.Microseconds()}
			return []statement{{text, args, func(rows pgx.Rows) error {
				var r store.Renewed
				var isSure bool
				var canceledBy *string
				err := rows.Scan(into(&r.ID), into(&r.Attempt), into(&isSure), &canceledBy, into(&r.By.Note))
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
		if sqlkit.State(err) == sqlkit.LockNotAvailable && len(renewed) > 0 {
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

// Finish implements store.Worker. A row that somebody keeps locked does not keep the other results
// from being written: it is waited for afterwards, and if that takes too long the call has failed,
// and may be repeated.
func (s *Store) Finish(ctx context.Context, _ string, results []store.Result) (counted []store.RunKey, err error) {
	byKey := map[store.RunKey]store.Result{}
	for _, r := range results {
		byKey[r.RunKey] = r
	}
	for text := s.texts["finish"]; len(byKey) > 0; text = s.texts["finish and wait"] {
		var list []resultJSON
		for key, r := range byKey {
			list = append(list, resultJSON{keyJSON(key), r.Outcome, r.State, storable(r.Error),
				max(0, r.RetryIn.Microseconds()), r.Took.Microseconds()})
		}
		var sure []store.RunKey
		unsure := map[store.RunKey]store.Result{}
		err := s.call(ctx, s.owned, func() []statement {
			sure = nil
			clear(unsure)
			return []statement{{text, []any{inJSON(list)}, func(rows pgx.Rows) error {
				var key store.RunKey
				var isSure bool
				err := rows.Scan(into(&key.ID), into(&key.Attempt), into(&isSure))
				if isSure {
					sure = append(sure, key)
				} else {
					unsure[key] = byKey[key]
				}
				return err
			}}}
		})
		if err != nil {
			return nil, err
		}
		counted, byKey = append(counted, sure...), unsure
	}
	return counted, ctx.Err()
}
