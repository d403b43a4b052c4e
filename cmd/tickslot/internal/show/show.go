// Package show prints the results of a command: a table for people, JSON or YAML for programs.
//
// Untrusted text cannot control the terminal. In a table it is printed on one line, escaped and
// shortened. In JSON and YAML it is escaped by their rules, so that programs read the original
// text.
package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	"go.yaml.in/yaml/v3"

	"github.com/tickslot/tickslot/internal/inert"
)

// A Format is an output format.
type Format string

// The formats.
const (
	FormatTable Format = "table"
	FormatWide  Format = "wide" // a table with all columns, and long texts in full
	FormatJSON  Format = "json"
	FormatYAML  Format = "yaml"
)

// Formats are all formats, the default first.
var Formats = []string{string(FormatTable), string(FormatWide), string(FormatJSON), string(FormatYAML)}

// ParseFormat parses the name of a format.
func ParseFormat(text string) (Format, error) {
	for _, f := range Formats {
		if f == text {
			return Format(f), nil
		}
	}
	return "", fmt.Errorf("%q is no format: use %s", text, strings.Join(Formats, ", "))
}

// A Table is the result of a command.
type Table struct {
	// Columns are the titles. A column that begins with + appears only in FormatWide. A column that
	// begins with = is never cut, because people copy its cells.
	Columns []string
	Rows    [][]string
	// Data is the result for programs.
	Data any
	// None is printed instead of an empty table.
	None string
	// Colour colors rows by their states. Set it only for a terminal.
	Colour bool
}

// Add adds a row with one cell per column.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// Print prints the table. In FormatTable no row is longer than width, the width of the terminal. 0
// means that there is no terminal.
func (t *Table) Print(w io.Writer, format Format, width int) error {
	switch format {
	case FormatJSON:
		return printJSON(w, t.Data)
	case FormatYAML:
		return printYAML(w, t.Data)
	}
	if len(t.Rows) == 0 {
		_, err := fmt.Fprintln(w, t.None)
		return err
	}
	lines, hidden := t.wide(), []string(nil)
	if format == FormatTable {
		lines, hidden = t.Lines(width)
	}
	if t.Colour {
		lines = t.coloured(lines)
	}
	if _, err := fmt.Fprintln(w, strings.Join(lines, "\n")); err != nil || len(hidden) == 0 {
		return err
	}
	_, err := fmt.Fprintln(w, ansi.Truncate("(no room for "+strings.Join(hidden, ", ")+": see -o wide)", width, "…"))
	return err
}

func printJSON(w io.Writer, data any) error {
	text, err := json.MarshalIndent(data, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(inert.JSON(text), '\n'))
	return err
}

// printYAML prints data as YAML, with the fields in the order of its JSON.
func printYAML(w io.Writer, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	var node yaml.Node
	if err := yaml.Unmarshal(inert.YAML(text), &node); err != nil {
		return err
	}
	plain(&node)
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(&node); err != nil {
		return err
	}
	_, err = w.Write(inert.YAML(out.Bytes()))
	return err
}

// plain removes the quotes and braces that JSON requires and YAML does not. Texts with characters
// that must be escaped keep their quotes.
func plain(n *yaml.Node) {
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!str" && inert.Has(n.Value):
		n.Style = yaml.DoubleQuotedStyle
	default:
		n.Style = 0
	}
	for _, inner := range n.Content {
		plain(inner)
	}
}

// Ago describes briefly how long ago an instant was. It returns "" if at is zero.
func Ago(at, now time.Time) string {
	if at.IsZero() {
		return ""
	}
	return Span(now.Sub(at))
}

// Span formats a duration with at most two units.
func Span(d time.Duration) string {
	if d < 0 {
		return "-" + Span(-d)
	}
	const day = 24 * time.Hour
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < 2*day:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
}
