package sqlkit

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tickslot/tickslot/dlock/driver"
)

// A Dialect is a kind of database.
type Dialect int

const (
	Postgres  Dialect = iota + 1
	MySQL             // and MariaDB
	SQLite            // all tables are in the schema main
	SQLServer         // never run against a server
)

// String returns the name of the database in messages and files.
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

// quote quotes a name and doubles each closing quote in it.
func quote(open, close, name string) string {
	return open + strings.ReplaceAll(name, close, close+close) + close
}

// Qualified returns a quoted name, preceded by its schema if there is one.
func (d Dialect) Qualified(schema, name string) string {
	if schema == "" {
		return d.Quote(name)
	}
	return d.Quote(schema) + "." + d.Quote(name)
}

// Text returns a string literal.
func Text(s string) string { return quote("'", "'", s) }

// TableNames are the table names in options.
type TableNames struct {
	Product  string // prefix of each fault, or ""
	Table    string // the name of a table, or the prefix of several
	Schema   string // "" for the default of the database or the connection
	MaxTable int    // in bytes; Postgres keeps 63 bytes of a name, and suffixes are added
	Braces   bool   // braces are allowed, because no statement passes through Bind
	NoPool   bool   // no pool was given
}

// CheckNames returns the faults of table names. Each fault matches driver.ErrSetup.
func (d Dialect) CheckNames(n TableNames) error {
	var faults []error
	product := n.Product
	if product != "" {
		product += ": "
	}
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("%s%w: "+format, append([]any{product, driver.ErrSetup}, args...)...))
	}
	check := func(what, name string, most int) {
		if !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
			fault("%s %q: use text without control characters", what, name)
		}
		if len(name) > most {
			fault("%s of %d bytes: at most %d bytes", what, len(name), most)
		}
		switch {
		case strings.ContainsAny(name, "{}") && !n.Braces:
			fault("%s %q: use text without braces", what, name)
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
	if n.Table == "" {
		fault("no TableName: set one")
	}
	check("TableName", n.Table, n.MaxTable)
	check("Schema", n.Schema, 63)
	if n.NoPool {
		fault("no *sql.DB: pass one")
	}
	return errors.Join(faults...)
}
