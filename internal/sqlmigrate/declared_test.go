package sqlmigrate_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
	"github.com/tickslot/tickslot/internal/testkit"
)

// A table's columns and indexes are read from the statements that create it, without comments,
// defaults, checks and column constraints.
//
// Fails when a word after the type is read as part of the type, or when a name with a special
// character is cut.
func TestDeclaredTables(t *testing.T) {
	for _, c := range []struct {
		schema sqlmigrate.Schema
		want   sqlmigrate.Table
	}{
		{sqlmigrate.Schema{Dialect: sqlkit.Postgres, Migrations: [][]string{{`-- A table (of jobs).
CREATE TABLE IF NOT EXISTS "s"."it's, a" (
	id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- the order, (really)
	key  text COLLATE "C" NOT NULL DEFAULT ', x integer' CHECK (key <> ')'),
	done boolean NOT NULL DEFAULT (1 > 0)
) WITH (fillfactor = 80)`}}, Repeat: []string{`CREATE UNIQUE INDEX IF NOT EXISTS "it's, a_key" ON "s"."it's, a" (key, id)
	WHERE key <> ''`, `CREATE FUNCTION f() AS $$ BEGIN CREATED := 1; END $$`}},
			sqlmigrate.Table{Name: `"s"."it's, a"`, Key: []string{"id"},
				Columns: []sqlkit.Column{{Name: "id", Type: "int8"}, {Name: "key", Type: "text"},
					{Name: "done", Type: "bool"}},
				Indexes: []sqlkit.Index{{Name: "it's, a_key", Columns: "key,id"}}}},
		{sqlmigrate.Schema{Dialect: sqlkit.MySQL, Migrations: [][]string{{"CREATE TABLE IF NOT EXISTS `a``b` (\n" +
			"\t`key` VARBINARY(200) NOT NULL,\n\tn INT UNSIGNED AS (1 + 1) VIRTUAL,\n" +
			"\tnote TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,\n\tPRIMARY KEY (`key`, n),\n" +
			"\tKEY notes (note, `key`),\n\tFOREIGN KEY (n) REFERENCES x (n)\n) ENGINE = InnoDB"}}},
			sqlmigrate.Table{Name: "`a``b`", Key: []string{"key", "n"},
				Columns: []sqlkit.Column{{Name: "key", Type: "varbinary(200)"}, {Name: "n", Type: "int unsigned"},
					{Name: "note", Type: "text utf8mb4 utf8mb4_bin"}},
				Indexes: []sqlkit.Index{{Name: "notes", Columns: "note,key"}}}},
		{sqlmigrate.Schema{Dialect: sqlkit.SQLServer, Migrations: [][]string{{"IF OBJECT_ID(N'[a]', N'U') IS NULL\n" +
			"CREATE TABLE [a] (\n\t[key] varbinary(max) NOT NULL,\n\tat datetime2(6) NULL,\n" +
			"\tPRIMARY KEY CLUSTERED ([key]),\n\tINDEX recent NONCLUSTERED (at, [key])\n)"}}},
			sqlmigrate.Table{Name: "[a]", Key: []string{"key"},
				Columns: []sqlkit.Column{{Name: "key", Type: "varbinary(max)"}, {Name: "at", Type: "datetime2(6)"}},
				Indexes: []sqlkit.Index{{Name: "recent", Columns: "at,key"}}}},
	} {
		tables := c.schema.Tables()
		if len(tables) != 1 || !reflect.DeepEqual(*tables[0], c.want) {
			t.Errorf("%v: %+v, want %+v", c.schema.Dialect, tables[0], c.want)
		}
	}
}

// Verify runs at each start, and a product may have routines that are a hundred times as long as
// its tables.
//
// Fails when routines are parsed too.
func TestARoutineCostsNothing(t *testing.T) {
	testkit.SkipRace(t)
	s := sqlmigrate.Schema{Dialect: sqlkit.Postgres, Migrations: [][]string{{"CREATE TABLE a (id bigint PRIMARY KEY)"}}}
	cost := func() float64 { return testing.AllocsPerRun(10, func() { s.Tables() }) }
	without := cost()
	s.Repeat = []string{"CREATE FUNCTION f() AS $$ " + strings.Repeat("PERFORM g(a, b);\n", 1000) + "$$"}
	if with := cost(); with > without+2 {
		t.Errorf("%v allocations with a routine, %v without", with, without)
	}
}
