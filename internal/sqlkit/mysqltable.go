package sqlkit

import (
	"context"
	"database/sql"
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A MySQLTable is a table as described by the catalog of MySQL.
type MySQLTable struct {
	engine  string
	columns map[string]string // the type of each column
	indexes map[string]string // column 1 of the index PRIMARY has the key "PRIMARY 1"
}

// A Scanner is a row of a result.
type Scanner interface{ Scan(dest ...any) error }

//go:embed mysql_tables.sql
var mysqlTables string

// displayWidth matches the display width that MariaDB and old MySQL versions add to integer types.
// It is irrelevant here.
var displayWidth = regexp.MustCompile(`^(\w*int)\(\d+\)`)

// ReadMySQLTables reads tables from the catalog, one for each of names in the same order, and the
// settings of the session. An entry is nil if there is no such table, or if this user has no right
// to it. If schema is "", the schema of the connection is used. read calls row for each row of a
// query.
func ReadMySQLTables(ctx context.Context, schema string, names []string,
	read func(ctx context.Context, query string, args []any, row func(Scanner) error) error) (
	[]*MySQLTable, map[string]string, error) {
	of := []any{sql.NullString{String: schema, Valid: schema != ""}}
	for _, name := range names {
		of = append(of, name)
	}
	list := strings.TrimSuffix(strings.Repeat("?, ", len(names)), ", ")
	found, session := map[string]*MySQLTable{}, map[string]string{}
	query := strings.ReplaceAll(mysqlTables, "{names}", list)
	err := read(ctx, query, slices.Concat(of, of, of), func(rows Scanner) error {
		var table, kind, name, value string
		if err := rows.Scan(&table, &kind, &name, &value); err != nil {
			return err
		}
		if kind == "session" {
			session[name] = value
			return nil
		}
		if found[table] == nil {
			found[table] = &MySQLTable{columns: map[string]string{}, indexes: map[string]string{}}
		}
		switch t := found[table]; kind {
		case "engine":
			t.engine = value
		case "column":
			t.columns[name] = displayWidth.ReplaceAllString(value, "$1")
		case "index":
			t.indexes[name] = value
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	tables := make([]*MySQLTable, len(names))
	for i, name := range names {
		tables[i] = found[name]
		for other, t := range found {
			if session["lower_case_table_names"] != "0" && strings.EqualFold(other, name) {
				tables[i] = t
			}
		}
		if tables[i] != nil && tables[i].engine == "" {
			tables[i] = nil
		}
	}
	return tables, session, nil
}

// An Index is the name of an index and its columns in order, separated by commas.
type Index struct{ Name, Columns string }

// Faults returns how the table with the given name differs from the required columns and indexes.
// It ignores additional ones.
func (m *MySQLTable) Faults(name string, columns []Column, indexes []Index) []error {
	faults := CheckColumns(name, m.columns, columns)
	if !strings.EqualFold(m.engine, "InnoDB") {
		faults = append(faults, fmt.Errorf("%s has engine %s, and has to have InnoDB", name, m.engine))
	}
	for _, want := range indexes {
		var list []string
		for seq := 1; m.indexes[fmt.Sprint(want.Name, " ", seq)] != ""; seq++ {
			list = append(list, m.indexes[fmt.Sprint(want.Name, " ", seq)])
		}
		if on := strings.Join(list, ","); on != want.Columns {
			faults = append(faults, fmt.Errorf("index %s of %s is on (%s), and has to be on (%s)", want.Name, name, on,
				want.Columns))
		}
	}
	return faults
}
