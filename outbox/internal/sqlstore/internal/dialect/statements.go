package dialect

import (
	"embed"
	"fmt"
	"maps"
	"regexp"
	"strings"

	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// Texts are the statements of one database, by file, with the names of the tables filled in. What
// is left in braces are parameters.
type Texts map[string]string

// parts are files that others include, each after those that it includes.
var parts = []string{"results_as_rows", "padded_id", "unknown", "edge", "inside", "page", "again", "free", "mine",
	"delivery", "last_requeued", "old", "record", "begin"}

// NewTexts returns the statements in files.
func NewTexts(files embed.FS, names map[string]string) Texts {
	t := Texts{}
	names = maps.Clone(names)
	names["first_attempts"], names["last_attempts"] = fmt.Sprint(store.FirstAttempts), fmt.Sprint(store.LastAttempts)
	list, err := files.ReadDir(".")
	if err != nil {
		panic(err) // it is embedded
	}
	for _, file := range list {
		text, err := files.ReadFile(file.Name())
		if err != nil {
			panic(err)
		}
		t[strings.TrimSuffix(file.Name(), ".sql")] = sqlmigrate.Fill(strings.TrimSpace(string(text)), names)
	}
	for _, part := range parts {
		with, ok := t[part]
		for name, text := range t {
			if ok {
				t[name] = strings.ReplaceAll(text, "{"+part+"}", with)
			}
		}
	}
	return t
}

// Params are the arguments of statements, by name: an int64, a string, a Name (of a topic, a key, a
// consumer), []byte, a store.ID, or a list of Names or of Numbers.
type Params map[string]any

type (
	Name    string
	Names   []string
	Numbers []int64
)

// A Statement is one that can be executed.
type Statement struct {
	Text string
	Args []any
}

var parameter = regexp.MustCompile(`\{[a-z_]+\}`)

// Bind returns the statement of a text. place returns what stands for the nth argument in it, and
// the argument; and false if there is none because the value itself stands there. once says that a
// parameter that is there twice is one argument.
func Bind(text string, p Params, once bool, place func(n int, value any) (string, any, bool)) Statement {
	var s Statement
	placed := map[string]string{}
	s.Text = parameter.ReplaceAllStringFunc(text, func(braced string) string {
		if there, ok := placed[braced]; ok && once {
			return there
		}
		value, ok := p[braced[1:len(braced)-1]]
		if !ok {
			return braced // the database refuses it
		}
		there, arg, isArg := place(len(s.Args)+1, value)
		if isArg {
			s.Args = append(s.Args, arg)
		}
		placed[braced] = there
		return there
	})
	return s
}

// List is never null in JSON.
func List[T any, L ~[]T](of L) string {
	if len(of) == 0 {
		return "[]"
	}
	return sqlkit.InJSON([]T(of))
}
