package page

import (
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/tickslot/tickslot/cluster/page/internal/pagekit"
)

// A clock tells ages as of an instant; zero: as of now.
type clock struct{ now time.Time }

func (c *clock) funcs() template.FuncMap {
	return template.FuncMap{"when": c.when, "age": c.age, "left": c.timeLeft, "clock": c.timeOfDay}
}

// time returns the instant at which ages end: that of the read, or now.
func (c *clock) time() time.Time {
	if c.now.IsZero() {
		return time.Now()
	}
	return c.now
}

// since is how long ago an instant is.
func (c *clock) since(t time.Time) time.Duration { return c.time().Sub(t) }

// ago says how long ago an instant is.
func (c *clock) ago(t time.Time) string {
	switch d := c.since(t); {
	case t.IsZero():
		return "never"
	case d < time.Second:
		return "now"
	default:
		return pagekit.Took(d) + " ago"
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
		return pagekit.Took(d)
	}
}

// when shows how long ago an instant is, or how long it is until then.
func (c *clock) when(t time.Time) template.HTML {
	if t.IsZero() {
		return "–"
	}
	if d := -c.since(t); d >= time.Second {
		return instant(t, "", "in "+pagekit.Took(d))
	}
	return instant(t, "", c.ago(t))
}

// age shows for how long something is so, and timeLeft for how much longer.
func (c *clock) age(t time.Time) template.HTML {
	return instant(t, "", strings.TrimSuffix(c.ago(t), " ago"))
}

func (c *clock) timeLeft(t time.Time) template.HTML { return instant(t, "", c.left(t)) }

// timeOfDay shows an instant as a time of day, of UTC: the script makes it that of the reader's
// zone.
func (c *clock) timeOfDay(t time.Time) template.HTML {
	if t.IsZero() {
		return "–"
	}
	layout := "15:04 UTC"
	if c.since(t).Abs() > 20*time.Hour {
		layout = "2 Jan 15:04 UTC"
	}
	return instant(t, " data-clock", t.UTC().Format(layout))
}

// instant shows a text about an instant, which is its tooltip.
func instant(t time.Time, attribute, text string) template.HTML {
	if t.IsZero() {
		return template.HTML(template.HTMLEscapeString(text))
	}
	t = t.UTC()
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s"%s>%s</time>`, t.Format(time.RFC3339Nano),
		t.Format("2006-01-02 15:04:05 UTC"), attribute, template.HTMLEscapeString(text)))
}
