package sqlkit

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tickslot/tickslot/dlock"
)

// A Dialect is a kind of database.
type Dialect int

const (
	Postgres  Dialect = iota + 1
	MySQL             // and MariaDB
	SQLite            // all names are in main
	SQLServer         // not run against a server
)

// String is how messages and files name it.
func (d Dialect) String() string {
	return [...]string{"", "postgres", "mysql", "sqlite", "sqlserver"}[d]
}

// Quote quotes a name.
func (d Dialect) Quote(name string) string {
	switch d {
	case MySQL:
		return quote("`", "`", name)
	case SQLServer:
		return quote("[", "]", name)
	}
	return quote(`"`, `"`, name)
}

// quote doubles the closing quote within the name.
func quote(open, close, name string) string {
	return open + strings.ReplaceAll(name, close, close+close) + close
}

// Qualified returns a quoted name with its schema, if there is one.
func (d Dialect) Qualified(schema, name string) string {
	if schema == "" {
		return d.Quote(name)
	}
	return d.Quote(schema) + "." + d.Quote(name)
}

// Text returns a literal.
func Text(s string) string { return quote("'", "'", s) }

// CheckNames returns what is wrong with the names of a table and its schema, and with a pool that
// is not there. Each fault begins with the product's name, unless that is "", and matches
// dlock.ErrSetup. The name of the table may have most bytes, so that there is room for suffixes
// within the 63 bytes that Postgres keeps of a name.
func (d Dialect) CheckNames(product, table, schema string, most int, noPool bool) error {
	var faults []error
	if product != "" {
		product += ": "
	}
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("%s%w: "+format, append([]any{product, dlock.ErrSetup}, args...)...))
	}
	check := func(what, name string, most int) {
		// Braces are the placeholders of the statements.
		if !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) || len(name) > most ||
			strings.ContainsAny(name, "{}") {
			fault("%s %q: use text without braces and control characters, at most %d bytes", what, name, most)
		}
		switch {
		case d == MySQL && strings.HasSuffix(name, " "):
			fault("%s %q: MySQL has no names that end with a space", what, name)
		case d == MySQL && strings.ContainsFunc(name, func(r rune) bool { return r > 0xFFFF }):
			fault("%s %q: MySQL has no names with characters beyond U+FFFF", what, name)
		case d == SQLite && what == "Schema" && name != "":
			fault("Schema %q: SQLite has none", name)
		case d == SQLite && strings.HasPrefix(strings.ToLower(name), "sqlite_"):
			fault("%s %q: SQLite keeps names that begin with sqlite_ to itself", what, name)
		}
	}
	if table == "" {
		fault("no TableName: set one")
	}
	check("TableName", table, most)
	check("Schema", schema, 63)
	if noPool {
		fault("no *sql.DB: pass one")
	}
	return errors.Join(faults...)
}
