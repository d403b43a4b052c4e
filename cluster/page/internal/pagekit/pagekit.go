// Package pagekit has what the page and its sections use to show data.
package pagekit

import (
	"fmt"
	"io/fs"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tickslot/tickslot/internal/mask"
)

// maxPayload is how many bytes of a payload are shown.
const maxPayload = 8 << 10

// Payload returns a payload as it is shown, and whether it is longer. It is "" if that is not text.
func Payload(payload []byte) (text string, cut bool) {
	if !utf8.Valid(payload) {
		return "", false
	}
	cut = len(payload) > maxPayload
	return strings.ToValidUTF8(string(payload[:min(len(payload), maxPayload)]), ""), cut
}

// Count says how many there are, in words: 1 run, 2 runs.
func Count[N int | int64](n N, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// Chosen names what was chosen: the only one by its name, several by their number.
func Chosen(names []string, one string) string {
	switch len(names) {
	case 0:
		return one + "s"
	case 1:
		return names[0]
	}
	return Count(len(names), one)
}

// About returns the title of an action on things that were chosen by their IDs.
func About(title string, ids []string) string {
	switch len(ids) {
	case 0:
		return title + "s"
	case 1:
		return title + " " + ids[0]
	}
	return fmt.Sprintf("%ss: %d", title, len(ids))
}

// A Failure is what ended for good with the same error.
type Failure struct {
	Text string
	IDs  []string
}

// Ask asks whether to do something to all of it.
func (f Failure) Ask(action, title string) Ask { return NewAsk(action, title, "id", f.IDs) }

// MaxURL is how long a URL is that all proxies and servers take.
const MaxURL = 2000

// An Ask leads to the page that asks whether to do something to what is chosen.
type Ask struct {
	Action, Title string
	Chosen        string // as in a query
}

// NewAsk returns one about values of a name of the URL.
func NewAsk(action, title, name string, values []string) Ask {
	return Ask{action, title, url.Values{name: values}.Encode()}
}

// Link is a URL; "": it would be too long, so a form has to send what is chosen.
func (a Ask) Link() string {
	link := "confirm?" + url.Values{"action": {a.Action}}.Encode() + "&" + a.Chosen
	if len(link) > MaxURL {
		return ""
	}
	return link
}

// Failures groups things by their errors, the most frequent first.
type Failures []Failure

// Add adds one of them.
func (f *Failures) Add(text, id string) {
	i := slices.IndexFunc(*f, func(g Failure) bool { return g.Text == text })
	if i < 0 {
		i = len(*f)
		*f = append(*f, Failure{Text: text})
	}
	(*f)[i].IDs = append((*f)[i].IDs, id)
}

// Sorted returns them.
func (f Failures) Sorted() Failures {
	slices.SortStableFunc(f, func(a, b Failure) int { return len(b.IDs) - len(a.IDs) })
	return f
}

// Templates returns the files in the folder templates.
func Templates(embedded fs.FS) fs.FS {
	files, err := fs.Sub(embedded, "templates")
	if err != nil { // the folder is embedded
		panic(err)
	}
	return files
}

// Seen says how old what a page shows is.
type Seen struct {
	ReadAt   time.Time `json:"read_at,omitzero"`
	ReadFail string    `json:"err,omitempty"` // why the latest is not shown; "": it is
}

// SeenOf is about what was read at an instant, and the error of the last try; nil: there is none.
func SeenOf(at time.Time, err error) Seen {
	s := Seen{ReadAt: at}
	if !at.IsZero() {
		s.ReadAt = at.UTC()
	}
	if err != nil {
		s.ReadFail = mask.Text(err.Error())
	}
	return s
}

// AsOf is the instant as of which a page shows ages; zero: it is now. What was true when a store
// answered last may not be true now.
func (s Seen) AsOf() time.Time {
	if s.ReadFail == "" {
		return time.Time{}
	}
	return s.ReadAt
}

// Why is the error in words that help; "": there are none.
func (s Seen) Why() string { return Plain(s.ReadFail) }

// silent are what errors end with of calls that were not answered: our words for that help nobody.
var silent = []string{"deadline exceeded", "context canceled", "EOF", "i/o timeout", "has not returned",
	"its time is over", "no answer yet"}

// isSilent reports whether the last part of an error says only that there was no answer.
func isSilent(part string) bool {
	return slices.ContainsFunc(silent, func(end string) bool { return strings.HasSuffix(part, end) })
}

// Plain returns the text of an error without the names of packages and calls that it begins with,
// and without how our code calls it that a store is silent. Of several errors, which have a line
// each, it is the first that says something; "": none does.
func Plain(text string) string {
	for line := range strings.Lines(text) {
		parts := strings.Split(strings.TrimSpace(line), ": ")
		for len(parts) > 1 && !strings.Contains(parts[0], " ") {
			parts = parts[1:]
		}
		if last := len(parts) - 1; isSilent(parts[last]) {
			parts = parts[:last]
		}
		if len(parts) > 0 && parts[0] != "" {
			return strings.Join(parts, ": ")
		}
	}
	return ""
}

// Reason is the last part of an error: the words of the store, or of the network. Of several errors
// it is that of the first; "": the store is silent.
func Reason(text string) string {
	for line := range strings.Lines(text) {
		parts := strings.Split(strings.TrimSpace(line), ": ")
		if last := parts[len(parts)-1]; !isSilent(last) {
			return last
		}
	}
	return ""
}

// An Option is a value of a list that can be chosen.
type Option struct {
	Value  string
	Chosen bool
}

// goDuration is a duration as time.Duration prints one.
var goDuration = regexp.MustCompile(`\b(\d+h)?(\d+m)?(\d+(?:\.\d+)?)(s|ms|µs|ns)\b`)

// Units returns the text of a schedule with units that everybody reads: every 1 h 30 min instead of
// every 1h30m0s. Unlike Took it leaves out nothing.
func Units(text string) string {
	return goDuration.ReplaceAllStringFunc(text, func(duration string) string {
		parts := goDuration.FindStringSubmatch(duration)
		var list []string
		for i, unit := range []string{"h", "min"} {
			if n := strings.TrimRight(parts[i+1], "hm"); n != "" && n != "0" {
				list = append(list, n+" "+unit)
			}
		}
		if parts[3] != "0" || len(list) == 0 {
			list = append(list, parts[3]+" "+parts[4])
		}
		return strings.Join(list, " ")
	})
}

// Took shows a duration, in two or three digits.
func Took(d time.Duration) string {
	const day = 24 * time.Hour
	// two shows a unit, and the next smaller one while there are few of it.
	two := func(unit, part time.Duration, unitName, partName string) string {
		n, rest := d/unit, d%unit/part
		if n >= 10 || rest == 0 {
			return fmt.Sprintf("%d %s", n, unitName)
		}
		return fmt.Sprintf("%d %s %d %s", n, unitName, rest, partName)
	}
	switch {
	case d < 0:
		return "-" + Took(-d)
	case d == 0:
		return "0 s"
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", (d + time.Microsecond/2).Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Seconds()), ".0") + " s"
	case d < 100*time.Second:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < 100*time.Minute:
		return two(time.Minute, time.Second, "min", "s")
	case d < 2*day:
		return two(time.Hour, time.Minute, "h", "min")
	default:
		return fmt.Sprintf("%d days", d/day)
	}
}
