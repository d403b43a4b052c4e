package schedule

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/netresearch/go-cron"
)

// Cron is due when the clocks of the zone show what the expression says: Cron("0 2 * * *",
// "Europe/Berlin"). The empty zone is UTC; all hosts need the same zone data. Check returns its
// faults.
//
// The fields are minute, hour, day of month, month and day of week; a sixth one, in front, is the
// second. A field is a list (1,15) of values, ranges (9-17, fri-mon) and steps (*/15, 9-17/2).
// Months and days of the week have names, in any case; * and ? are any value. 7 is Sunday, as is 0.
// Days of the month may be L (the last), L-2 (two days before it), 15W (the weekday next to the
// 15th) and LW (the last weekday), days of the week fri#2 (the second Friday) and fri#L (the last
// one). Where both kinds of days are restricted, one of them is enough, as ever in cron. @yearly,
// @annually, @monthly, @weekly, @daily, @midnight and @hourly are words for the usual ones.
//
// When clocks are set forward, a time that they do not show is due at the first instant after the
// gap, once. When they are set back, a time that they show twice is due the first time. An
// expression whose hours are all 24 follows real time instead: it is due whenever the clocks show
// one of its minutes, also for the second time, and a gap of an hour takes nothing from it; only
// after a gap that is no whole number of hours the times that were not shown are due, once.
func Cron(spec, zone string) Schedule {
	c := crontab{spec: spec, calendar: calendar{zone: zone}}
	loc, zoneErr := loadZone(zone)
	s, specErr := parseCron(spec)
	c.loc, c.err = loc, errors.Join(specErr, zoneErr)
	if s != nil {
		const allHours = 1<<24 - 1
		c.wall, c.hourly = s, s.Hour&allHours == allHours
		if s.Second == 1 {
			c.wall = wholeMinutes{s}
		}
	}
	return c
}

type crontab struct {
	spec string
	calendar
}

func (c crontab) String() string {
	return fmt.Sprintf("cron %s in %s", quote(c.spec), zoneName(c.zone))
}

// wholeMinutes spares the library to step through the seconds of a minute in which nothing is due
// any more.
type wholeMinutes struct{ cron.Schedule }

func (m wholeMinutes) Next(t time.Time) time.Time {
	return m.Schedule.Next(t.Truncate(time.Minute).Add(time.Minute - 1))
}

// The parser's day of month and day of week are both needed unless it is told that one of them is
// enough. It looks for 5 years, but the fifth Friday in a February may be 40 years away.
var cronParser = cron.MustNewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow |
	cron.Descriptor | cron.Extended | cron.DowOrDom).WithMaxSearchYears(50)

// The fields in their order, and what each takes.
var cronFields = [...]struct{ name, takes string }{
	{"second", "0 to 59"},
	{"minute", "0 to 59"},
	{"hour", "0 to 23"},
	{"day of month", "1 to 31, L, L-2, 15W or LW"},
	{"month", "1 to 12 or jan to dec"},
	{"day of week", "0 to 7 (both are Sunday), sun to sat, fri#2 or fri#L"},
}

const dayOfWeek = 5

// A cronText is an expression while its faults are looked for.
type cronText string

func (t cronText) fault(at int, format string, args ...any) error {
	return fault("cron", string(t), at, format, args...)
}

// parseCron does what the library leaves undone: it finds the place of a fault, and refuses what
// the library lets pass although it means nothing, or something else than it says.
func parseCron(spec string) (*cron.SpecSchedule, error) {
	t := cronText(spec)
	fields, err := t.fields()
	if err != nil {
		return nil, err
	}
	if spec[fields[0].at] != '@' {
		for i, f := range fields {
			if err := t.checkField(i+len(cronFields)-len(fields), f); err != nil {
				return nil, err
			}
		}
	}
	s, err := askLibrary(strings.TrimSpace(spec))
	if err != nil {
		return nil, t.fault(fields[0].at, "%v", err)
	}
	if s.Next(epoch).IsZero() {
		at := fields[0].at
		if len(fields) > 1 {
			at = fields[len(fields)-3].at
		}
		return nil, t.fault(at, "it never fires, because there is no such date: mend the day of month or the month")
	}
	return s, nil
}

// askLibrary parses. It is where a panic of the library would end.
func askLibrary(spec string) (s *cron.SpecSchedule, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the parser panicked: %v", p)
		}
	}()
	parsed, err := cronParser.Parse(strings.ToLower(spec)) // names and words in any case
	if err != nil {
		return nil, err
	}
	s, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, fmt.Errorf("it is not a calendar, but a %T", parsed)
	}
	s.Location = time.UTC // it gets wall time, and knows nothing of zones
	return s, nil
}

// A piece is a part of an expression and where it stands.
type piece struct {
	at   int
	text string
}

// split cuts a piece at each separator.
func (p piece) split(separator string) []piece {
	var all []piece
	at := p.at
	for text := range strings.SplitSeq(p.text, separator) {
		all = append(all, piece{at, text})
		at += len(text) + len(separator)
	}
	return all
}

const cronBlanks = " \t\r\n"

// fields returns the fields, and the faults that have nothing to do with one of them.
func (t cronText) fields() ([]piece, error) {
	spec := string(t)
	if len(spec) > cron.MaxSpecLength {
		return nil, t.fault(cron.MaxSpecLength, "it is %d bytes long: use at most %d", len(spec), cron.MaxSpecLength)
	}
	var fields []piece
	for _, f := range (piece{0, strings.NewReplacer("\t", " ", "\r", " ", "\n", " ").Replace(spec)}).split(" ") {
		if f.text != "" {
			fields = append(fields, f)
		}
	}
	if len(fields) == 0 {
		return nil, t.fault(0, `it is empty: use five fields (minute, hour, day of month, month, day of week), as in "30 2 * * *"`)
	}
	first := fields[0]
	switch name, _, zoned := strings.Cut(strings.ToUpper(first.text), "="); {
	case zoned && (name == "TZ" || name == "CRON_TZ"):
		return nil, t.fault(first.at, "the time zone is the second argument of Cron: take it out here")
	case strings.HasPrefix(first.text, "@"):
		return fields, t.checkWord(fields)
	}
	if i := strings.IndexFunc(spec, func(r rune) bool {
		return !strings.ContainsRune(cronBlanks+"*?,-/#", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}); i >= 0 {
		return nil, t.fault(i, "a cron expression has no such character")
	}
	const usage = "use five fields (minute, hour, day of month, month, day of week), or six with the second in front"
	switch n := len(fields); {
	case n < 5:
		return nil, t.fault(len(strings.TrimRight(spec, cronBlanks)), "it ends after %d of 5 fields: %s", n, usage)
	case n > 6:
		return nil, t.fault(fields[6].at, "it has %d fields: %s", n, usage)
	}
	return fields, nil
}

var cronWords = []string{"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"}

func (t cronText) checkWord(fields []piece) error {
	word := strings.ToLower(fields[0].text)
	switch {
	case word == "@every":
		return t.fault(fields[0].at, "an interval is not cron: use schedule.Every")
	case word == "@reboot":
		return t.fault(fields[0].at, "a fleet has no start that all hosts agree on: call Trigger, or do it before Run")
	}
	for _, w := range cronWords {
		if w == word {
			if len(fields) > 1 {
				return t.fault(fields[1].at, "%s stands alone", w)
			}
			return nil
		}
	}
	return t.fault(fields[0].at, "there is no such word: use one of %s", strings.Join(cronWords, ", "))
}

// checkField finds the first fault of a field: it asks the library about ever smaller pieces of it.
func (t cronText) checkField(field int, f piece) error {
	kind := cronFields[field]
	for _, element := range f.split(",") {
		if element.text == "" {
			return t.fault(element.at, "%s: a value is missing in the list", kind.name)
		}
		stepped := element.split("/")
		span := stepped[0]
		ends := span.split("-")
		for _, end := range ends {
			switch _, err := askField(field, end.text); {
			case end.text == "":
				return t.fault(end.at, "%s: a value is missing: use %s", kind.name, kind.takes)
			case err != nil:
				return t.fault(end.at, "%s: %s is not one of its values: use %s", kind.name, quote(end.text), kind.takes)
			case len(ends) > 1 && strings.Trim(end.text, "*?") == "":
				return t.fault(end.at, "%s: %s has no place in a range", kind.name, end.text) // the library ignores what follows it
			}
		}
		if _, err := askField(field, span.text); err != nil {
			return t.fault(ends[len(ends)-1].at, "%s: %s is not understood: a range is written as 1-5", kind.name, quote(span.text))
		}
		if len(stepped) == 1 {
			continue
		}
		step := stepped[1]
		if len(stepped) > 2 {
			return t.fault(step.at+len(step.text), "%s: there is more than one step", kind.name)
		}
		if _, err := askField(field, element.text); err != nil {
			return t.fault(step.at, "%s: %s is not a step here: use a number from 1 that is less than the number of values in the range", kind.name, quote(step.text))
		}
		if field == dayOfWeek && len(ends) > 1 && !stepsRight(ends[0], span, step) {
			return t.fault(element.at, "%s: steps over the end of a week are not understood: list the days", kind.name)
		}
	}
	return nil
}

// askField asks the library about one field.
func askField(field int, text string) (*cron.SpecSchedule, error) {
	if strings.ContainsAny(text, "+"+cronBlanks) {
		return nil, errors.New("no value")
	}
	all := [...]string{"*", "*", "*", "*", "*", "*"}
	all[field] = text
	return askLibrary(strings.Join(all[:], " "))
}

// stepsRight says whether the library steps through a range of days of the week as a person does.
// It does not where a range goes from one week into the next, because it counts Sunday twice there,
// as 7 and as 0.
func stepsRight(first, span, step piece) bool {
	days := func(text string) uint64 {
		s, err := askField(dayOfWeek, text)
		if err != nil {
			return 0
		}
		return s.Dow & (1<<7 - 1)
	}
	n, err := strconv.Atoi(step.text)
	if err != nil || n < 1 {
		return false
	}
	var want uint64
	for d := 0; d < bits.OnesCount64(days(span.text)); d += n {
		want |= 1 << ((bits.TrailingZeros64(days(first.text)) + d) % 7)
	}
	return want == days(span.text+"/"+step.text)
}
