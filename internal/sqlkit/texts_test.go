package sqlkit_test

import (
	"testing"
	"testing/fstest"

	"github.com/tickslot/tickslot/internal/sqlkit"
)

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

// The statements for a database consist of those for all databases and its own, with included parts
// and table names filled in.
//
// Fails when a file for another database is read, or when a part is not filled in.
func TestReadTexts(t *testing.T) {
	files := fstest.MapFS{
		"sql/relay.sql": file("-- For all.\n\n-- name: count\nSELECT count(*) FROM {messages}\n"),
		"sql/relay.postgres.sql": file("-- name: mine\nm.key = {key}\n\n" +
			"-- name: due\nSELECT 1 FROM {messages} AS m WHERE {mine}\n"),
		"sql/relay.sqlite.sql": file("-- name: due\nSELECT 2\n"),
	}
	texts := sqlkit.ReadTexts(files, sqlkit.Postgres, map[string]string{"messages": `"a{b}"`})
	for name, want := range map[string]string{"count": `SELECT count(*) FROM "a{b}"`,
		"due": `SELECT 1 FROM "a{b}" AS m WHERE m.key = {key}`} {
		if texts[name] != want {
			t.Errorf("%s is %q, want %q", name, texts[name], want)
		}
	}
	s := sqlkit.Postgres.Bind("{key} {n} {key}", sqlkit.Params{"key": sqlkit.Name("k"), "n": int64(2)})
	if s.Text != "$1::text $2::bigint $1::text" || len(s.Args) != 2 || s.Args[0] != "k" {
		t.Errorf("%+v", s)
	}
	s = sqlkit.MySQL.Bind("{key} IN ({keys}) {text}", sqlkit.Params{"key": sqlkit.Name("k"),
		"keys": sqlkit.Names{"a"}, "text": "é"})
	if s.Text != "x'6b' IN (x'00', x'61') ?" || len(s.Args) != 1 || string(s.Args[0].([]byte)) != "é" {
		t.Errorf("%+v", s)
	}
}

// Files that contradict each other fail in the first test that opens a store.
//
// Fails when the second statement of a name replaces the first.
func TestReadTextsRefusesContradictions(t *testing.T) {
	for what, files := range map[string]fstest.MapFS{
		"nothing":       {},
		"twice":         {"sql/a.sql": file("-- name: a\n1\n-- name: a\n2\n")},
		"in two files":  {"sql/a.sql": file("-- name: a\n1\n"), "sql/b.sqlite.sql": file("-- name: a\n2\n")},
		"within itself": {"sql/a.sql": file("-- name: a\n{b}\n-- name: b\n{a}\n")},
	} {
		t.Run(what, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			sqlkit.ReadTexts(files, sqlkit.SQLite, nil)
		})
	}
}

// Names that a database would reject later, or that statements cannot contain, are rejected
// immediately.
//
// Fails when a rule of one database is not checked.
func TestCheckNames(t *testing.T) {
	for _, c := range []struct {
		dialect       sqlkit.Dialect
		table, schema string
		fine          bool
	}{
		{sqlkit.Postgres, "a b", "é", true}, {sqlkit.Postgres, "", "", false}, {sqlkit.Postgres, "a{b", "", false},
		{sqlkit.Postgres, "a\n", "", false}, {sqlkit.Postgres, "0123456789x", "", false},
		{sqlkit.MySQL, "a ", "", false}, {sqlkit.MySQL, "a", "b ", false}, {sqlkit.MySQL, "😀", "", false},
		{sqlkit.SQLite, "a ", "", true}, {sqlkit.SQLite, "a", "main", false}, {sqlkit.SQLite, "SQLite_a", "", false},
	} {
		err := c.dialect.CheckNames(sqlkit.TableNames{Table: c.table, Schema: c.schema, MaxTable: 10})
		if (err == nil) != c.fine {
			t.Errorf("%v %q %q: %v", c.dialect, c.table, c.schema, err)
		}
	}
	if sqlkit.Postgres.CheckNames(sqlkit.TableNames{Table: "a", MaxTable: 10, NoPool: true}) == nil {
		t.Error("no pool is accepted")
	}
}
