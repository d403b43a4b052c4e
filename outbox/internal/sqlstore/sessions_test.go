package sqlstore_test

import (
	"strings"
	"testing"

	"github.com/tickslot/tickslot/proof/sqltest"
)

// Session settings from a role, a database or a DSN change no answer. Verify reports settings that
// would change answers.
//
// Fails when a statement depends on a setting that the store neither sets nor refuses.
func TestSessionsWithOtherSettings(t *testing.T) {
	t.Parallel()
	t.Run("Postgres", func(t *testing.T) {
		t.Parallel()
		s := postgresOn(t, quickPostgres(t), "")
		sqltest.StrangePostgres(t, s.server, s.database)
		store, _ := s.migrated(t)
		if err := store.Verify(t.Context()); err != nil {
			t.Error(err)
		}
		if failed := everyCall(t, s); len(failed) > 0 {
			t.Error(failed)
		}
	})
	t.Run("MariaDB", func(t *testing.T) {
		t.Parallel()
		server := quickMariaDB(t)
		s := mysqlOn(t, server, oneTrip+"&"+sqltest.StrangeMariaDB)
		store, _ := s.migrated(t)
		if err := store.Verify(t.Context()); err != nil {
			t.Error(err)
		}
		if failed := everyCall(t, s); len(failed) > 0 {
			t.Error(failed)
		}
		oracle := mysqlOn(t, server, oneTrip+"&sql_mode=%27ORACLE%27")
		if store, _ := oracle.migrated(t); store.Verify(t.Context()) != nil {
			t.Error("Verify fails with sql_mode ORACLE")
		}
		if failed := everyCall(t, oracle); len(failed) > 0 {
			t.Error("ORACLE", failed)
		}
		for name, setting := range sqltest.RefusedMariaDB {
			db := opened(t, "mysql", server.DSN("", "", s.database)+oneTrip+"&"+setting)
			if err := s.on(t, db, "").Verify(t.Context()); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", setting, err)
			}
		}
	})
}
