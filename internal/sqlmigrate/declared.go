package sqlmigrate

import (
	"regexp"
	"slices"
	"strings"

	"github.com/tickslot/tickslot/internal/sqlkit"
)

// A Table is a table as declared by its CREATE TABLE statement and those of its indexes.
type Table struct {
	Name    string          // quoted, with its schema if the statement names one
	Columns []sqlkit.Column // with their types as named in the database's catalog
	Key     []string        // the columns of the primary key
	Indexes []sqlkit.Index  // without the index of the primary key
}

// Tables returns the tables that the statements of s declare, so that only SQL declares them. It
// parses only the SQL of this project.
func (s Schema) Tables() (tables []*Table) {
	for _, statement := range append(slices.Concat(s.Migrations...), s.Repeat...) {
		// Routines are a hundred times as long as tables, and parsing them would take as long as
		// connecting.
		if !declares.MatchString(statement) {
			continue
		}
		words := token.FindAllString(statement, -1)
		words = slices.DeleteFunc(words, func(w string) bool { return strings.HasPrefix(w, "--") })
		for i, word := range words {
			if !strings.EqualFold(word, "CREATE") {
				continue
			}
			p := &parser{dialect: s.Dialect, words: words[i+1:]}
			p.skip("UNIQUE")
			switch {
			case p.skip("TABLE"):
				tables = append(tables, p.table())
			case p.skip("INDEX"):
				name, on, columns := p.index()
				for _, t := range tables {
					if p.last(t.Name) == p.last(on) {
						t.Indexes = append(t.Indexes, sqlkit.Index{Name: p.unquote(p.last(name)), Columns: columns})
					}
				}
			}
		}
	}
	return tables
}

// declares matches statements that create tables or indexes, but no routines.
var declares = regexp.MustCompile(`CREATE (TABLE|INDEX|UNIQUE INDEX) `)

// token matches a comment, a string, a quoted name, a word, or another character.
var token = regexp.MustCompile("--[^\n]*|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`(?:[^`]|``)*`|" +
	`\[(?:[^\]]|\]\])*\]|\w+|\S`)

type parser struct {
	dialect sqlkit.Dialect
	words   []string
}

// skip reads the given words if they come next.
func (p *parser) skip(words ...string) bool {
	if len(p.words) < len(words) {
		return false
	}
	for i, word := range words {
		if !strings.EqualFold(p.words[i], word) {
			return false
		}
	}
	p.words = p.words[len(words):]
	return true
}

func (p *parser) next() (word string) {
	if len(p.words) > 0 {
		word, p.words = p.words[0], p.words[1:]
	}
	return word
}

// name reads a name, with its schema if there is one.
func (p *parser) name() string {
	p.skip("IF", "NOT", "EXISTS")
	name := p.next()
	for p.skip(".") {
		name += "." + p.next()
	}
	return name
}

// list reads a list in parentheses and returns the words of each item.
func (p *parser) list() (items [][]string) {
	if !p.skip("(") {
		return nil
	}
	var item []string
	for depth := 1; len(p.words) > 0; {
		word := p.next()
		switch word {
		case "(":
			depth++
		case ")":
			depth--
		}
		if depth == 0 || depth == 1 && word == "," {
			items, item = append(items, item), nil
		} else {
			item = append(item, word)
		}
		if depth == 0 {
			return items
		}
	}
	return items
}

// columns reads a list of columns and returns their names.
func (p *parser) columns() (names []string) {
	for _, item := range p.list() {
		names = append(names, p.unquote(item[0]))
	}
	return names
}

func (p *parser) index() (name, on, columns string) {
	name = p.name()
	p.skip("ON")
	on = p.name()
	return name, on, strings.Join(p.columns(), ",")
}

func (p *parser) table() *Table {
	t := &Table{Name: p.name()}
	for _, item := range p.list() {
		q := &parser{p.dialect, item}
		switch {
		case q.skip("PRIMARY", "KEY"):
			q.skip("CLUSTERED")
			t.Key = q.columns()
		case q.dialect == sqlkit.MySQL && (q.skip("UNIQUE", "KEY") || q.skip("KEY")), // elsewhere KEY may be a column
			q.dialect == sqlkit.SQLServer && q.skip("INDEX"):
			index := sqlkit.Index{Name: q.unquote(q.name())}
			q.skip("NONCLUSTERED")
			index.Columns = strings.Join(q.columns(), ",")
			t.Indexes = append(t.Indexes, index)
		case q.skip("FOREIGN"), q.skip("CONSTRAINT"), q.skip("CHECK"), q.skip("UNIQUE"):
		default:
			column := sqlkit.Column{Name: q.unquote(q.next())}
			column.Type = q.columnType()
			t.Columns = append(t.Columns, column)
			for len(q.words) > 0 {
				if q.skip("PRIMARY", "KEY") {
					t.Key = []string{column.Name}
				}
				q.next()
			}
		}
	}
	return t
}

// pgTypes maps types in statements to their different names in pg_type.
var pgTypes = map[string]string{"bigint": "int8", "integer": "int4", "smallint": "int2", "boolean": "bool"}

// columnType reads the type of a column.
func (p *parser) columnType() string {
	typ := strings.ToLower(p.next())
	var sizes []string
	for _, size := range p.list() {
		sizes = append(sizes, size[0])
	}
	switch p.dialect {
	case sqlkit.Postgres:
		if name, ok := pgTypes[typ]; ok {
			return name
		}
		return typ
	case sqlkit.SQLite:
		return strings.ToUpper(typ)
	}
	if sizes != nil {
		typ += "(" + strings.Join(sizes, ",") + ")"
	}
	if p.skip("UNSIGNED") {
		typ += " unsigned"
	}
	if p.skip("CHARACTER", "SET") {
		typ += " " + p.next()
		if p.skip("COLLATE") {
			typ += " " + p.next()
		}
	}
	return typ
}

// last returns a name without its schema. Both may be quoted and contain dots.
func (p *parser) last(name string) string {
	words := token.FindAllString(name, -1)
	return words[len(words)-1]
}

func (p *parser) unquote(name string) string {
	for _, quotes := range []string{`""`, "``", "[]"} {
		if strings.HasPrefix(name, quotes[:1]) {
			end := quotes[1:]
			return strings.ReplaceAll(name[1:len(name)-1], end+end, end)
		}
	}
	return name
}
