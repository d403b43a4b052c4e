package dialect

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/sqlkit"
)

// A Table says which table it is.
type Table struct {
	Schema string // "": where the connection looks first, or the default of the database
	Name   string
}

var (
	// ErrSchema is matched by what Verify and Migrate return when the table or the routines are
	// missing, old, or not as Schema makes them.
	ErrSchema = fmt.Errorf("sqllock: %w: the schema is not right", dlock.ErrSetup)

	// ErrAnswer is an answer that makes no sense: some other routine of the same name, or a proxy
	// gone wrong.
	ErrAnswer = errors.New("sqllock: the database gave an answer that makes no sense")
)

// tableFormat is the number of the format in which this version keeps its rows. A version that
// keeps them in a way that this one would misread has to write a larger number, in its Migrate,
// into overrides_version of the row with slot -1 and no name, which is the name of nothing. Every
// acquire reads that row, so that of two versions on one table only those grant that understand it.
// The number stands in the files that acquire, too. Columns and routines that are only added need
// no new number.
const tableFormat = 1

// CheckFormat returns an error if a later version has made the table its own.
func CheckFormat(format int64) error {
	if format <= tableFormat {
		return nil
	}
	return fmt.Errorf("%w: a later version of tickslot uses the table, with format %d, and this one knows format "+
		"%d: update this host", dlock.ErrSetup, format, tableFormat)
}

// A Column is the name and the type of a column as the schema makes it, in the words of the
// catalogue of the database.
type Column [2]string

// CheckColumns compares the columns of a table with those that are needed. Further columns do no
// harm.
func CheckColumns(table string, has map[string]string, want []Column) []error {
	var errs []error
	for _, c := range want {
		name, wanted := c[0], c[1]
		switch typ := has[name]; {
		case typ == "":
			errs = append(errs, fmt.Errorf("%s has no column %s", table, name))
		case !strings.EqualFold(typ, wanted):
			errs = append(errs, fmt.Errorf("column %s of %s is %s, and has to be %s", name, table, typ, wanted))
		}
	}
	return errs
}

// WrongSchema joins what is wrong, or returns nil.
func WrongSchema(errs ...error) error {
	err := errors.Join(errs...)
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: call Migrate, or execute Schema:\n%w", ErrSchema, err)
}

// Fill puts names into the text of a statement: {table} and the like.
func Fill(text string, names map[string]string) string {
	pairs := make([]string, 0, 2*len(names))
	for _, name := range slices.Sorted(maps.Keys(names)) {
		pairs = append(pairs, "{"+name+"}", names[name])
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// Statements splits a script at the semicolons that end a line.
func Statements(script string) []string {
	var list []string
	for part := range strings.SplitSeq(script, ";\n") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}

// Quote puts an identifier into quotes, in which the closing one is doubled.
func Quote(open, close, name string) string {
	return open + strings.ReplaceAll(name, close, close+close) + close
}

// Qualified is a name in its schema, if there is one.
func Qualified(schema, name string, quoted func(string) string) string {
	if schema == "" {
		return quoted(name)
	}
	return quoted(schema) + "." + quoted(name)
}

// maxClockOffset is how far the clocks of this host and of the server may be apart.
const maxClockOffset = time.Second

// ClockWarnings compares the clocks of this host, before and after it asked, and of the server, in
// µs since 1970.
func ClockWarnings(sent, got time.Time, server int64) []string {
	half := got.Sub(sent) / 2
	ahead := sent.Add(half).Sub(time.UnixMicro(server))
	if ahead.Abs()-half <= maxClockOffset {
		return nil
	}
	const ms = time.Millisecond
	which, then := "ahead of", "starts its ticks too early, and those more than "+dlock.MaxTickAhead.String()+" ahead are refused"
	if ahead < 0 {
		which, then = "behind", "starts its ticks too late"
	}
	return []string{fmt.Sprintf("the clock of this host is %v %s the server's (give or take %v): leases do not "+
		"mind, but this host %s; have both follow NTP",
		ahead.Abs().Round(ms), which, max(half.Round(ms), ms), then)}
}

// LockWait is how long a lock in the database may be waited for, in milliseconds: nine tenths of
// the time that the caller has, so that the answer that it is locked still reaches him.
func LockWait(ctx context.Context) int64 {
	deadline, ok := ctx.Deadline()
	if !ok {
		return sqlkit.LastResort.Milliseconds()
	}
	return max(1, min(time.Until(deadline)*9/10, dlock.MaxTTL).Milliseconds())
}

// OrNull is null for an empty text.
func OrNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// AsJSON is a list of text and numbers, in which every character that need not be escaped is
// itself: a database without an encoding has no idea of what character an escape stands for.
func AsJSON(list any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(list) // nothing can be wrong with such a list
	return separators.ReplaceAllStringFunc(strings.TrimSpace(b.String()), func(escape string) string {
		switch escape {
		case `\u2028`:
			return "\u2028"
		case `\u2029`:
			return "\u2029"
		}
		return escape
	})
}

// separators finds every escape: the two that encoding/json writes without need are to be told from
// a backslash before the same letters.
var separators = regexp.MustCompile(`\\(u2028|u2029|.)`)

// HexNames writes a list of names in hex, so that neither a character set nor a collation can
// change them.
func HexNames(resources string) (string, error) {
	var list []string
	if err := json.Unmarshal([]byte(resources), &list); err != nil {
		return "", err
	}
	for i, name := range list {
		list[i] = hex.EncodeToString([]byte(name))
	}
	text, err := json.Marshal(list)
	return string(text), err
}

// LongestWait is how long a caller without a deadline waits for a lock of the database, in
// milliseconds.
const LongestWait = 60_000
