package sqlkit

import (
	"encoding/hex"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
)

// Texts are the statements of a product on one database, by name. Remaining names in braces are
// parameters for Bind.
type Texts map[string]string

// ReadTexts reads the statements of a database. sql/relay.sql is for all databases, and
// sql/relay.postgres.sql for one. In a file, a line "-- name: due" begins the statement due. In a
// statement, {due} stands for the statement or part due, and {messages} for names["messages"].
//
// It panics if the files contradict each other, because they are embedded.
func ReadTexts(files fs.FS, d Dialect, names map[string]string) Texts {
	list, err := fs.Glob(files, "sql/*.sql")
	if err != nil || len(list) == 0 {
		panic(fmt.Sprint("no sql/*.sql: ", err))
	}
	raw := map[string]string{}
	for _, name := range list {
		parts := strings.Split(name, ".")
		if len(parts) == 3 && parts[1] != d.String() {
			continue
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			panic(err)
		}
		for _, section := range strings.Split("\n"+string(text), "\n-- name: ")[1:] {
			of, text, _ := strings.Cut(section, "\n")
			if _, twice := raw[of]; twice {
				panic(fmt.Sprintf("%s: the statement %s is defined twice", name, of))
			}
			raw[of] = strings.TrimSpace(text)
		}
	}
	r := reader{raw: raw, names: names, texts: Texts{}, reading: map[string]bool{}}
	for name := range raw {
		r.text(name)
	}
	return r.texts
}

var braced = regexp.MustCompile(`\{[a-z_][a-z0-9_]*\}`)

type reader struct {
	raw, names map[string]string
	texts      Texts
	reading    map[string]bool
}

// text returns a statement with the parts that it includes.
func (r *reader) text(name string) string {
	if text, ok := r.texts[name]; ok {
		return text
	}
	if r.reading[name] {
		panic("the statement " + name + " includes itself")
	}
	r.reading[name] = true
	text := braced.ReplaceAllStringFunc(r.raw[name], func(b string) string {
		part := b[1 : len(b)-1]
		if text, ok := r.names[part]; ok {
			return text
		}
		if _, ok := r.raw[part]; ok {
			return r.text(part)
		}
		return b
	})
	r.texts[name] = text
	return text
}

// Params are the arguments of statements by name: an int64, a string, a Name (of a topic, a key, a
// consumer), []byte, an ID, or a list of Names or Numbers. An InText is a number that becomes part
// of the text on every database, because some databases accept no argument there, and others choose
// indexes by the number.
type Params map[string]any

type (
	InText  int64
	Name    string
	Names   []string
	Numbers []int64
	ID      [16]byte
)

// A Statement is a text with its arguments, ready to be executed.
type Statement struct {
	Text string
	Args []any
}

// Bind returns the statement for a text with its arguments.
func (d Dialect) Bind(text string, p Params) Statement {
	switch d {
	case Postgres:
		return bindPostgres(text, p)
	case MySQL:
		return bindMySQL(text, p)
	case SQLite:
		return bindSQLite(text, p)
	}
	return bindSQLServer(text, p)
}

// bind returns the statement for a text. place returns the text that replaces the nth argument, and
// the argument. It returns false if there is no argument because that text contains the value. once
// says that a parameter that occurs twice is one argument.
func bind(text string, p Params, once bool, place func(n int, value any) (string, any, bool)) Statement {
	var s Statement
	placed := map[string]string{}
	s.Text = braced.ReplaceAllStringFunc(text, func(b string) string {
		if there, ok := placed[b]; ok && once {
			return there
		}
		value, ok := p[b[1:len(b)-1]]
		if !ok {
			return b // the database will reject it
		}
		if n, ok := value.(InText); ok {
			return strconv.FormatInt(int64(n), 10)
		}
		there, arg, isArg := place(len(s.Args)+1, value)
		if isArg {
			s.Args = append(s.Args, arg)
		}
		placed[b] = there
		return there
	})
	return s
}

// plain converts a parameter into a type that drivers accept.
func plain(value any) any {
	switch v := value.(type) {
	case Name:
		return string(v)
	case Names:
		return inList[string](v)
	case Numbers:
		return inList[int64](v)
	}
	return value
}

// inList encodes a list as JSON. An empty list is [], never null.
func inList[T any, L ~[]T](of L) string {
	if len(of) == 0 {
		return "[]"
	}
	return InJSON([]T(of))
}

// bindPostgres returns a statement with the arguments $1, $2, …, each with a type.
func bindPostgres(text string, p Params) Statement {
	return bind(text, p, true, func(n int, value any) (string, any, bool) {
		typ := "text"
		switch v := value.(type) {
		case int64:
			typ = "bigint"
		case []byte:
			typ = "bytea"
		case ID:
			typ, value = "text::uuid", fmt.Sprintf("%x", v[:])
		}
		return fmt.Sprintf("$%d::%s", n, typ), plain(value), true
	})
}

// bindSQLite returns a statement with the arguments ?1, ?2, ….
func bindSQLite(text string, p Params) Statement {
	return bind(text, p, true, func(n int, value any) (string, any, bool) {
		if id, ok := value.(ID); ok {
			value = id[:]
		}
		return fmt.Sprintf("?%d", n), plain(value), true
	})
}

// bindMySQL inserts numbers, names and IDs into the text, so that the server can choose indexes by
// them. It inserts text as bytes, because the server would convert text from the connection's
// character set.
func bindMySQL(text string, p Params) Statement {
	return bind(text, p, false, func(_ int, value any) (string, any, bool) {
		switch v := value.(type) {
		case int64:
			return strconv.FormatInt(v, 10), nil, false
		case ID:
			return fmt.Sprintf("x'%x'", v[:]), nil, false
		case Name:
			return inHex(string(v)), nil, false
		case Names:
			all := []string{inHex("\x00")} // a value that no name has, because a list must not be empty
			for _, name := range v {
				all = append(all, inHex(name))
			}
			return strings.Join(all, ", "), nil, false
		case Numbers:
			all := []string{"0"} // a value that no row has
			for _, n := range v {
				all = append(all, strconv.FormatInt(n, 10))
			}
			return strings.Join(all, ", "), nil, false
		case string:
			return "?", []byte(v), true
		}
		return "?", value, true
	})
}

func inHex(text string) string { return fmt.Sprintf("x'%x'", text) }

// bindSQLServer sends names as bytes, and lists of names in hex, which no collation can change.
func bindSQLServer(text string, p Params) Statement {
	return bind(text, p, true, func(n int, value any) (string, any, bool) {
		switch v := value.(type) {
		case ID:
			value = v[:]
		case Name:
			value = []byte(v)
		case Names:
			hexed := make([]string, len(v))
			for i, name := range v {
				hexed[i] = hex.EncodeToString([]byte(name))
			}
			value = inList(hexed)
		}
		return fmt.Sprintf("@p%d", n), plain(value), true
	})
}
