package sqlregistry_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/tickslot/tickslot/cluster/sqlregistry"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// Session settings (of a role, a database or a DSN) do not change results. Verify reports the
// settings that would.
//
// Fails when a statement depends on a setting that the store does not reject.
func TestSessionsWithOtherSettings(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"Postgres", "pgx"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			s := ways[way](t)
			sqltest.StrangePostgres(t, s.server, s.database)
			store := s.migrated(t)
			if err := store.Verify(t.Context()); err != nil {
				t.Error(err)
			}
			if failed := calls(t, store); len(failed) > 0 {
				t.Error(failed)
			}
		})
	}
	t.Run("MariaDB", func(t *testing.T) {
		t.Parallel()
		s := mysqlOn(t, quickMariaDB(t), oneTrip+"&"+sqltest.StrangeMariaDB)
		store := s.migrated(t)
		if err := store.Verify(t.Context()); err != nil {
			t.Error(err)
		}
		if failed := calls(t, store); len(failed) > 0 {
			t.Error(failed)
		}
		refused := maps.Clone(sqltest.RefusedMariaDB)
		refused["SIMULTANEOUS_ASSIGNMENT"] = "sql_mode=%27ORACLE%27"
		for name, setting := range refused {
			db := opened(t, "mysql", s.server.DSN("", "", s.database)+oneTrip+"&"+setting)
			err := sqlregistry.MySQL(db, sqlregistry.Options{}).Verify(t.Context())
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", setting, err)
			}
		}
	})
}
