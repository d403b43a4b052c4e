package show

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// title returns a column's name without its marks.
func title(column string) string { return strings.TrimLeft(column, "+=") }

// column returns the index of a column.
func (t *Table) column(name string) (int, error) {
	var names []string
	for i, c := range t.Columns {
		if strings.EqualFold(title(c), name) {
			return i, nil
		}
		names = append(names, strings.ToLower(title(c)))
	}
	return 0, fmt.Errorf("there is no column %q: use %s", name, strings.Join(names, ", "))
}

// Sort sorts the rows by a column, and Data in the same way. A - before the name reverses the
// order.
func (t *Table) Sort(name string) error {
	name, reverse := strings.CutPrefix(name, "-")
	at, err := t.column(name)
	if err != nil {
		return err
	}
	order := make([]int, len(t.Rows))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		if reverse {
			i, j = j, i
		}
		return compare(t.Rows[i][at], t.Rows[j][at])
	})
	t.choose(order)
	return nil
}

// Keep keeps the rows in which the cell of a column equals text, and their Data.
func (t *Table) Keep(name, text string) error {
	at, err := t.column(name)
	if err != nil {
		return err
	}
	var order []int
	for i, row := range t.Rows {
		if strings.EqualFold(row[at], text) {
			order = append(order, i)
		}
	}
	t.choose(order)
	return nil
}

// choose replaces the rows, and Data, with those at the given indexes.
func (t *Table) choose(order []int) {
	data := reflect.ValueOf(t.Data)
	chosen := reflect.MakeSlice(data.Type(), 0, len(order))
	rows := make([][]string, 0, len(order))
	for _, i := range order {
		rows, chosen = append(rows, t.Rows[i]), reflect.Append(chosen, data.Index(i))
	}
	t.Rows, t.Data = rows, chosen.Interface()
}

// compare orders cells: numbers and durations by value, others as texts, empty ones last.
func compare(a, b string) int {
	if (a == "") != (b == "") {
		return cmp.Compare(strconv.FormatBool(a == ""), strconv.FormatBool(b == ""))
	}
	x, isX := number(a)
	y, isY := number(b)
	if isX && isY {
		return cmp.Compare(x, y)
	}
	return strings.Compare(a, b)
}

// number returns the value of a number or a Span.
func number(text string) (float64, bool) {
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		return n, true
	}
	days := 0
	if before, rest, ok := strings.Cut(text, "d"); ok {
		n, err := strconv.Atoi(before)
		if err != nil {
			return 0, false
		}
		days, text = n, rest
	}
	d, err := time.ParseDuration(text)
	return float64(time.Duration(days)*24*time.Hour + d), err == nil
}

// colours are the colors of states and outcomes; others have none.
var colours = map[string]string{
	"failing": red, "dead": red, "gone": red, "refused": red, "error": red, "panic": red, "timeout": red,
	"lease_lost": red, "paused": yellow, "suspect": yellow, "unknown": yellow, "no host": yellow, "running": green,
}

// Terminal escape codes.
const (
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
	green  = "\x1b[32m"
	reset  = "\x1b[0m"
)

// coloured colors the lines of rows by their state or outcome. The first line is the titles.
func (t *Table) coloured(lines []string) []string {
	for i, row := range t.Rows {
		for j, name := range t.Columns {
			name = title(name)
			if code := colours[row[j]]; code != "" && (name == "STATE" || name == "OUTCOME") {
				lines[i+1] = code + lines[i+1] + reset
				break
			}
		}
	}
	return lines
}
