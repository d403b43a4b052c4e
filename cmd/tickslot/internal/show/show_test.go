package show_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/charmbracelet/x/ansi"
	"go.yaml.in/yaml/v3"

	"github.com/tickslot/tickslot/cmd/tickslot/internal/show"
)

// These names try to clear the screen, change the writing direction, end the row, or fill the line.
var hostile = []string{
	"\x1b[2J\x1b]0;owned\x07", "a\u202eb\u2066c", "two\nlines\tand a tab", "\u009b31m", "del\x7f", "bad \xff byte", `a "quoted" \u202e`,
	"true", "- x: {y", "\U000e0041tag", strings.Repeat("long ", 40),
}

// Untrusted text cannot control a terminal, and JSON and YAML preserve it.
//
// Fails when a cell is printed unescaped, or when YAML contains a hidden character without quotes.
func TestHostileTextIsInert(t *testing.T) {
	t.Parallel()
	for _, format := range show.Formats {
		table := show.Table{Columns: []string{"NAME", "NEXT"}, Data: hostile}
		for _, name := range hostile {
			table.Add(name, "x")
		}
		var out bytes.Buffer
		if err := table.Print(&out, show.Format(format), 0); err != nil {
			t.Fatal(err)
		}
		for _, r := range out.String() {
			if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
				t.Errorf("%s has %U:\n%s", format, r, &out)
			}
		}
		switch show.Format(format) {
		case show.FormatJSON:
			same(t, out.Bytes(), json.Unmarshal)
		case show.FormatYAML:
			same(t, out.Bytes(), yaml.Unmarshal)
		default:
			if lines := strings.Count(out.String(), "\n"); lines != 1+len(hostile) {
				t.Errorf("%s has %d lines:\n%s", format, lines, &out)
			}
		}
	}
}

func same(t *testing.T, text []byte, read func([]byte, any) error) {
	t.Helper()
	var got []string
	if err := read(text, &got); err != nil {
		t.Fatal(err)
	}
	for i, want := range hostile {
		if want = strings.ToValidUTF8(want, "\ufffd"); i >= len(got) || got[i] != want {
			t.Errorf("%q came back otherwise:\n%s", want, text)
		}
	}
}

// The columns of a table are aligned. Long texts and additional columns appear in the wide format.
//
// Fails when a column appears in the wrong format.
func TestTables(t *testing.T) {
	t.Parallel()
	table := show.Table{Columns: []string{"NAME", "AGE", "+NOTE"}, None: "nothing"}
	var none bytes.Buffer
	if err := table.Print(&none, show.FormatTable, 0); err != nil || none.String() != "nothing\n" {
		t.Errorf("%q, %v", &none, err)
	}
	table.Add("report", show.Span(90*time.Second), "")
	table.Add(strings.Repeat("x", 50), show.Span(50*time.Hour), "why")
	for format, want := range map[show.Format]string{
		show.FormatTable: "NAME                                              AGE\n" +
			"report                                            1m30s\n" +
			strings.Repeat("x", 47) + "…  2d2h\n",
		show.FormatWide: "NAME                                                AGE    NOTE\n" +
			"report                                              1m30s  -\n" +
			strings.Repeat("x", 50) + "  2d2h   why\n",
	} {
		var out bytes.Buffer
		if err := table.Print(&out, format, 0); err != nil || out.String() != want {
			t.Errorf("%s, %v:\n%s", format, err, &out)
		}
	}
}

// On a terminal no row is longer than the line, whatever it contains. Long texts are cut, then
// columns are left out from the right, with a remark. Cells that people copy are never cut.
//
// Fails when double-width or zero-width characters are miscounted, or when a row is too long.
func TestTablesFitTheTerminal(t *testing.T) {
	t.Parallel()
	table := show.Table{Columns: []string{"NAME", "=ID", "STATE", "ERROR", "=AT", "+NOTE"}}
	const id = "0190f5d4-7e1c-7c3a-9b1e-0f6f3f8e2a11"
	for _, name := range append(hostile, strings.Repeat("時計", 30), strings.Repeat("e\u0301", 60), "👩‍👩‍👧", "") {
		table.Add(name, id, "running", name, "2026-02-28T12:00:00Z", "why")
	}
	for _, width := range []int{200, 80, 60, 40, 20, 3, 1} {
		var out bytes.Buffer
		if err := table.Print(&out, show.FormatTable, width); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if n := ansi.StringWidth(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("%d characters for %d: %q", n, width, line)
			}
		}
		full := width >= 60
		if full && strings.Count(out.String(), id) != len(table.Rows) {
			t.Errorf("%d: an ID is cut:\n%s", width, &out)
		}
		if said := strings.Contains(out.String(), "(no room for "); width >= 20 && said != (width < 200) {
			t.Errorf("%d: what is left out is not said:\n%s", width, &out)
		}
	}
}

// Rows are colored by their states on request.
//
// Fails when a table is colored without a request, or in another row's color.
func TestColours(t *testing.T) {
	t.Parallel()
	for _, colour := range []bool{false, true} {
		table := show.Table{Columns: []string{"NAME", "STATE"}, Colour: colour}
		table.Add("failing", "idle")
		table.Add("report", "failing")
		var out bytes.Buffer
		if err := table.Print(&out, show.FormatTable, 80); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(out.String(), "\n")
		if strings.Contains(lines[0]+lines[1], "\x1b") ||
			colour != (strings.HasPrefix(lines[2], "\x1b[31m") && strings.HasSuffix(lines[2], "\x1b[0m")) {
			t.Errorf("%v: %q", colour, lines)
		}
	}
}
