package page

import (
	"fmt"
	"html/template"
	"strings"
	"time"
)

// A clock tells ages as of an instant; zero: as of now.
type clock struct{ now time.Time }

func (c *clock) funcs() template.FuncMap {
	return template.FuncMap{"ago": c.ago, "left": c.left,
		"age": func(t time.Time) string { return strings.TrimSuffix(c.ago(t), " ago") }}
}

// since is how long ago an instant is.
func (c *clock) since(t time.Time) time.Duration {
	if c.now.IsZero() {
		return time.Since(t)
	}
	return c.now.Sub(t)
}

// ago says how long ago an instant is.
func (c *clock) ago(t time.Time) string {
	switch d := c.since(t); {
	case t.IsZero():
		return "never"
	case d < time.Second:
		return "now"
	default:
		return took(d) + " ago"
	}
}

// left says how long it is until an instant.
func (c *clock) left(t time.Time) string {
	switch d := -c.since(t); {
	case t.IsZero():
		return "–"
	case d <= 0:
		return "over"
	default:
		return took(d)
	}
}

// took shows a duration, rounded to two or three digits.
func took(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 0:
		return "-" + took(-d)
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return strings.Replace(d.Round(time.Second).String(), "m0s", "m", 1)
	case d < 2*day:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	default:
		return fmt.Sprintf("%d days", d/day)
	}
}

// when shows an instant in UTC; the script puts that of the reader's zone before it.
func when(t time.Time) template.HTML {
	if t.IsZero() {
		return "–"
	}
	t = t.UTC()
	return template.HTML(fmt.Sprintf(`<time datetime="%s">%s</time>`, t.Format(time.RFC3339Nano),
		t.Format("2006-01-02 15:04:05 UTC")))
}
