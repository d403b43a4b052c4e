package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tickslot/tickslot/internal/sqlkit"
)

// explain adds advice to the error of a call. If a privilege on a table is missing, the error of
// Postgres names only the table, so explain queries which privilege it is.
func (s *Store) explain(ctx context.Context, from source, err error) error {
	explained := sqlkit.Explain(err)
	refusal, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || refusal.Code != "42501" {
		return explained
	}
	for _, table := range tables {
		if !strings.Contains(refusal.Message, s.schema.Name+"_"+table) {
			continue
		}
		var missing string
		asked := from(ctx, func(conn *pgx.Conn) error {
			return conn.QueryRow(ctx, "SELECT coalesce(string_agg(r, ', '), '') FROM unnest(ARRAY['SELECT', 'INSERT', "+
				"'UPDATE', 'DELETE']) AS r WHERE NOT has_table_privilege($1::text, r)", s.names[table]).Scan(&missing)
		})
		if asked == nil && missing != "" {
			return fmt.Errorf("%w: of the rights on %s, this user lacks %s", explained, s.names[table], missing)
		}
	}
	return explained
}
