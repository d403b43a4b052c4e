package store

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/clocks"
	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
)

// Table is the name of a table.
type Table struct {
	Schema string // "" for the database's default
	Name   string
}

var (
	// ErrSchema matches the errors of Verify and Migrate if the table or the routines are missing,
	// old, or different from Schema's.
	ErrSchema = fmt.Errorf("sqllock: %w: the schema is not right", driver.ErrSetup)

	// ErrAnswer is the error for an invalid answer, for example from another routine of the same
	// name.
	ErrAnswer = errors.New("sqllock: the database gave an answer that makes no sense")
)

// tableFormat is the version of the format of the rows. A version of this package may write rows
// that this version would misread. Its Migrate must then store a higher number in overrides_version
// of the row with slot -1 and an empty name. Every acquire reads that row, so only versions that
// understand the format grant. The number is also in the acquire and snapshot files. New columns
// and routines do not need a new number.
const tableFormat = 1

// CheckFormat returns an error if a later version has changed the format of the table.
func CheckFormat(format int64) error {
	if format <= tableFormat {
		return nil
	}
	return fmt.Errorf("%w: a later version of tickslot uses the table, with format %d, and this one knows format "+
		"%d: update this host", driver.ErrSetup, format, tableFormat)
}

// ReadRow returns a Reader for a database whose statements return one row.
func ReadRow(queryRow func(ctx context.Context, query string, args []any, dest ...any) error) sqlmigrate.Reader {
	return func(ctx context.Context, query string, args []any, _ func(), row func(sqlmigrate.Row) error) error {
		return row(rowOf(func(dest ...any) error { return queryRow(ctx, query, args, dest...) }))
	}
}

type rowOf func(dest ...any) error

// Scan implements sqlmigrate.Row.
func (r rowOf) Scan(dest ...any) error { return r(dest...) }

// ClockWarnings compares this host's clock, read before and after a call, with the server's clock
// in µs since 1970.
func ClockWarnings(sent, got time.Time, server int64) []string {
	if w := clocks.Warning(sent, got, time.UnixMicro(server)); w != "" {
		return []string{w}
	}
	return nil
}

// LockWait returns the maximum wait for a lock in the database, in milliseconds. It is nine tenths
// of the caller's time, so that the error still reaches the caller.
func LockWait(ctx context.Context) int64 {
	return sqlkit.MaxWait(ctx, driver.MaxTTL).Milliseconds()
}

// OrNull returns nil for an empty text.
func OrNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// DelayOrNull returns nil for a request without a delay.
func DelayOrNull(c AcquireParams) *int64 {
	if c.Delay == 0 {
		return nil
	}
	return &c.Delay
}

// AsJSON returns a list as JSON that escapes only characters that need it. A database without an
// encoding cannot tell which character an escape stands for.
func AsJSON(list any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(list) // marshaling such a list cannot fail
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

// separators matches every escape. So the two unnecessary escapes of encoding/json are not confused
// with an escaped backslash before the same letters.
var separators = regexp.MustCompile(`\\(u2028|u2029|.)`)

// HexNames encodes the names of a JSON list in hex, which no character set or collation changes.
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

// LongestWait is the maximum LockWait, in milliseconds, for servers that wait in whole seconds.
const LongestWait = 60_000
