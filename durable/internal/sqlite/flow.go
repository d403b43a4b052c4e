package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/tickslot/tickslot/internal/flow"
	"github.com/tickslot/tickslot/internal/sqlkit"
)

// Flow implements store.Reader.
func (s *Store) Flow(ctx context.Context) (flow.Flow, error) {
	return sqlkit.Read(ctx, s.file, func(conn *sql.Conn) (flow.Flow, error) {
		var now time.Time
		all, err := rows(conn, s.texts["flow"], func(r *flow.Row) []any {
			return []any{&r.Part, &r.Name, &r.N, &r.Count, at{&now}}
		}, flow.Interval.Microseconds(), flow.Span.Microseconds(), flow.Most)
		if err != nil {
			return flow.Flow{}, err
		}
		return flow.Of(all[:len(all)-1], now), nil // the last row has only the time
	})
}
