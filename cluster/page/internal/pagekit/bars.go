package pagekit

import (
	"fmt"
	"time"
)

// ChartHeight is the height of a chart, in px.
const ChartHeight = 80

// Bars are a picture over time, with a column for each bucket, for the template "bars".
type Bars struct {
	From, MiddleAt time.Time
	EndsAt         time.Time // zero: now
	Columns        int
	Height         int
	Layers         []Layer
	Tips           []Tip
	Top            string // what the upper edge means
	Text           string // what it shows, in words
}

// A Layer is all bars of a color, in one path: a month has 744 of them.
type Layer struct{ Class, Path string }

// A Tip is the tooltip of a column.
type Tip struct{ Path, Text string }

// BarOf returns the path of a bar from one value to another. most is the value of the upper edge.
func BarOf[N int | int64 | time.Duration](column int, from, until, most N) string {
	if until <= from {
		return ""
	}
	height := float64(ChartHeight) / float64(most)
	low := int(height * float64(from))
	high := max(low+2, int(height*float64(until)))
	return fmt.Sprintf("M%d %dv%dh1v%dz", column, ChartHeight-low, low-high, high-low)
}

// AddTip adds the tooltip of a column.
func (b *Bars) AddTip(column int, format string, args ...any) {
	b.Tips = append(b.Tips, Tip{fmt.Sprintf("M%d 0h1v%dh-1z", column, b.Height), fmt.Sprintf(format, args...)})
}
