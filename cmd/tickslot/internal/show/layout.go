package show

import (
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/tickslot/tickslot/internal/inert"
)

const (
	maxCell = 48 // characters of a text if the screen width is unknown
	minCell = 8  // minimum characters of a text on a narrow screen
	between = "  "
)

// A column is a column of Lines, with its width in characters.
type column struct {
	title           string
	at              int // index of its cell in a row
	width, minWidth int
}

// Lines returns the titles and rows of FormatTable, none longer than width; 0 means no limit. If
// there is too little room, it first cuts long texts, and then leaves out columns from the right.
// It returns the names of those columns.
func (t *Table) Lines(width int) (lines, hidden []string) {
	var columns []column
	maxWidth := maxCell
	if width > 0 {
		maxWidth = width
	}
	cells := make([][]string, len(t.Rows))
	for i, row := range t.Rows {
		cells[i] = make([]string, len(row))
		for j, text := range row {
			cells[i][j] = cell(text)
			if !strings.HasPrefix(t.Columns[j], "=") {
				cells[i][j] = ansi.Truncate(cells[i][j], maxWidth, "…")
			}
		}
	}
	for j, title := range t.Columns {
		if strings.HasPrefix(title, "+") {
			continue
		}
		c := column{title: strings.TrimPrefix(title, "="), at: j}
		c.width = ansi.StringWidth(c.title)
		c.minWidth = max(c.width, minCell)
		for _, row := range cells {
			c.width = max(c.width, ansi.StringWidth(row[j]))
		}
		if c.title != title {
			c.minWidth = c.width
		}
		columns = append(columns, c)
	}
	if width > 0 {
		columns, hidden = fit(columns, width)
	}
	return arrange(columns, cells), hidden
}

// fit narrows the widest columns until all fit. If they do not fit at their narrowest, it leaves
// out the last one.
func fit(columns []column, width int) (fitting []column, hidden []string) {
	for n := len(columns); n > 1; n-- {
		fitting = slices.Clone(columns[:n])
		if shrink(fitting, width-(n-1)*len(between)) {
			return fitting, hidden
		}
		hidden = slices.Insert(hidden, 0, columns[n-1].title)
	}
	fitting = slices.Clone(columns[:min(1, len(columns))])
	for i := range fitting {
		fitting[i].width = min(fitting[i].width, width)
	}
	return fitting, hidden
}

// shrink narrows the columns and reports whether they fit.
func shrink(columns []column, room int) bool {
	for _, c := range columns {
		room -= c.width
	}
	for ; room < 0; room++ {
		widest := -1
		for i, c := range columns {
			if c.width > c.minWidth && (widest < 0 || c.width > columns[widest].width) {
				widest = i
			}
		}
		if widest < 0 {
			return false
		}
		columns[widest].width--
	}
	return true
}

// wide returns the titles and rows of FormatWide: all columns, and texts in full.
func (t *Table) wide() []string {
	cells := make([][]string, len(t.Rows))
	for i, row := range t.Rows {
		for _, text := range row {
			cells[i] = append(cells[i], cell(text))
		}
	}
	columns := make([]column, len(t.Columns))
	for j, title := range t.Columns {
		columns[j] = column{title: strings.TrimLeft(title, "+="), at: j}
		columns[j].width = ansi.StringWidth(columns[j].title)
		for _, row := range cells {
			columns[j].width = max(columns[j].width, ansi.StringWidth(row[j]))
		}
	}
	return arrange(columns, cells)
}

// arrange aligns the columns.
func arrange(columns []column, cells [][]string) []string {
	lines := make([]string, 0, 1+len(cells))
	line := func(text func(c column) string) {
		var b strings.Builder
		for i, c := range columns {
			shown := ansi.Truncate(text(c), c.width, "…")
			b.WriteString(shown)
			if i < len(columns)-1 {
				b.WriteString(strings.Repeat(" ", c.width-ansi.StringWidth(shown)) + between)
			}
		}
		lines = append(lines, b.String())
	}
	line(func(c column) string { return c.title })
	for _, row := range cells {
		line(func(c column) string { return row[c.at] })
	}
	return lines
}

// cell returns a text in the form of a table cell.
func cell(text string) string {
	if text = inert.Line(text); text == "" {
		return "-"
	}
	return text
}
