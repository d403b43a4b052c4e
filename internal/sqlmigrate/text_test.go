package sqlmigrate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
)

// The tests have no SQL Server, so they check only the texts.
func TestTextsForSQLServer(t *testing.T) {
	t.Parallel()
	s := sqlmigrate.Schema{Dialect: sqlkit.SQLServer, Schema: "dbo", Name: "it's [x]",
		Migrations: [][]string{{"CREATE TABLE a", "CREATE INDEX b"}, {"ALTER TABLE a"}}, Repeat: []string{"CREATE c"}}
	list := s.Statements()
	if len(list) != 7 || !slices.Equal(list[2:3], []string{"CREATE INDEX b"}) || list[6] != "CREATE c" {
		t.Fatal(strings.Join(list, "\n"))
	}
	for i, want := range map[int]string{
		0: "IF OBJECT_ID(N'[dbo].[it''s [x]]_migrations]', N'U') IS NULL\nCREATE TABLE [dbo].[it's [x]]_migrations] (",
		1: "-- Migration 1 of it's [x].\nCREATE TABLE a",
		3: "INSERT INTO [dbo].[it's [x]]_migrations] (version) SELECT 1 WHERE NOT EXISTS " +
			"(SELECT 1 FROM [dbo].[it's [x]]_migrations] WHERE version = 1)",
	} {
		if !strings.HasPrefix(list[i], want) {
			t.Errorf("%s\nhas to begin with\n%s", list[i], want)
		}
	}
}

func ExampleSchema_Statements() {
	schema := sqlmigrate.Schema{Dialect: sqlkit.Postgres, Schema: "public", Name: "jobs",
		Migrations: [][]string{
			sqlmigrate.Statements(`CREATE TABLE IF NOT EXISTS "public"."jobs" (id bigint PRIMARY KEY);`),
			sqlmigrate.Statements(`ALTER TABLE "public"."jobs" ADD COLUMN IF NOT EXISTS note text;`),
		}}
	for _, statement := range schema.Statements() {
		fmt.Println(strings.ReplaceAll(statement, "\t", "  ") + ";")
	}
	// Output:
	// CREATE TABLE IF NOT EXISTS "public"."jobs_migrations" (
	//   version    bigint PRIMARY KEY,
	//   applied_at timestamptz NOT NULL DEFAULT pg_catalog.now()
	// );
	// -- Migration 1 of jobs.
	// CREATE TABLE IF NOT EXISTS "public"."jobs" (id bigint PRIMARY KEY);
	// INSERT INTO "public"."jobs_migrations" (version) VALUES (1) ON CONFLICT DO NOTHING;
	// -- Migration 2 of jobs.
	// ALTER TABLE "public"."jobs" ADD COLUMN IF NOT EXISTS note text;
	// INSERT INTO "public"."jobs_migrations" (version) VALUES (2) ON CONFLICT DO NOTHING;
}
