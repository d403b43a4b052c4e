package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickslot/tickslot/internal/flow"
)

// Flow implements store.Reader.
func (s *Store) Flow(ctx context.Context) (flow.Flow, error) {
	var all []flow.Row
	var now time.Time
	err := s.call(ctx, s.shared, func() []statement {
		all = nil
		return []statement{{s.texts["flow"], flowArgs(), func(rows pgx.Rows) error {
			var r flow.Row
			err := rows.Scan(into(&r.Part), into(&r.Name), into(&r.N), into(&r.Count), into(&now))
			if r.Count > 0 {
				all = append(all, r)
			}
			return err
		}}}
	})
	if err != nil {
		return flow.Flow{}, err
	}
	return flow.Of(all, now), nil
}

func flowArgs() []any {
	return []any{flow.Interval.Microseconds(), flow.Span.Microseconds(), flow.Most}
}
