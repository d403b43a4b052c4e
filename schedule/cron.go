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

// Cron returns a schedule that is due when the clocks of the zone match the expression: Cron("0 2 *
// * *", "Europe/Berlin"). The empty zone is UTC. "Local" is the zone of this host, for programs
// whose hosts do not share ticks. All hosts need the same zone data. Check returns the faults of
// the expression and the zone; ParseCron returns them directly.
//
// The fields are minute, hour, day of month, month and day of week. An optional sixth field, in
// front, is the second. A field is a list (1,15) of values, ranges (9-17, fri-mon) and steps (*/15,
// 9-17/2). A step must be smaller than the number of values in its range. */60 and 5-6/3 are
// refused; other crons use only the first value of such a range. Months and days of the week may be
// written as names, in upper or lower case. * and ? match any value. Both 0 and 7 are Sunday. The
// day of month may be L (the last day), L-2 (two days before the last), 15W (the weekday nearest to
// the 15th) or LW (the last weekday). The day of week may be fri#2 (the second Friday) or fri#L
// (the last Friday). Quartz counts the days of the week from Sunday as 1. Therefore, in an
// expression with six fields and a ? for the day of month, as Quartz writes it, numbers for days of
// the week are refused. @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly are
// accepted. A date that does not exist, such as 30 February, is refused.
//
// If both the day of month and the day of week are restricted, a day that matches either is due, as
// in robfig/cron. Other crons differ. In Vixie cron a field that begins with * is not restricted:
// "0 0 */2 * MON" is due there on Mondays that are odd days, and here on odd days and on Mondays.
// Quartz allows only one of the two fields to be restricted.
//
// When clocks are set forward, a skipped time is due once, at the first instant after the gap. When
// clocks are set back, a time that is shown twice is due only the first time. An expression that
// allows all 24 hours follows elapsed time instead. It is due whenever the clocks show one of its
// minutes, including the second time, and a gap of whole hours adds no tick. If the gap is not a
// whole number of hours, the skipped times are due once, after the gap. For example, when clocks
// are set back, "*/5 * * * *" continues through the repeated hour, while "*/5 0-6 * * *" pauses
// during its second pass. Vixie cron behaves differently.
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

// ParseCron is like Cron, for an expression that comes from a table, a file or a form. If the
// expression or the zone is invalid, ParseCron returns a nil Schedule and an error. The error has
// the first fault of the expression, with a marker under its place in the text, and the fault of
// the zone.
func ParseCron(spec, zone string) (Schedule, error) {
	s := Cron(spec, zone)
	if faults := Check(s); len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return s, nil
}

type crontab struct {
	spec string
	calendar
}

func (c crontab) String() string {
	return fmt.Sprintf("cron %s in %s", quote(c.spec), zoneName(c.zone))
}

// wholeMinutes prevents the cron library from stepping through the remaining seconds of a minute,
// in which no tick can follow.
type wholeMinutes struct{ cron.Schedule }

func (w wholeMinutes) Next(t time.Time) time.Time {
	return w.Schedule.Next(t.Truncate(time.Minute).Add(time.Minute - 1))
}

// cronParser parses expressions. By default it requires both the day of month and the day of week
// to match; DowOrDom lets either match. By default it searches only 5 years ahead, but the next
// fifth Friday in a February may be 40 years away.
var cronParser = cron.MustNewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow |
	cron.Descriptor | cron.Extended | cron.DowOrDom).WithMaxSearchYears(50)

// cronFields lists the fields in order, with the values that each field allows.
var cronFields = [...]struct{ name, takes string }{
	{"second", "0 to 59"},
	{"minute", "0 to 59"},
	{"hour", "0 to 23"},
	{"day of month", "1 to 31, L, L-2, 15W or LW"},
	{"month", "1 to 12 or jan to dec"},
	{"day of week", "0 to 7 (both are Sunday), sun to sat, fri#2 or fri#L"},
}

const dayOfWeek = 5

// A cronText is an expression that is being parsed.
type cronText string

func (c cronText) fault(at int, format string, args ...any) error {
	return fault("cron", string(c), at, format, args...)
}

// parseCron extends the library's parser in two ways. It finds the position of a fault, and it
// rejects expressions that the library accepts although they mean nothing or are misleading.
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
	if err := t.checkQuartz(fields); err != nil {
		return nil, err
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
		return nil, t.fault(at, "it never fires, because there is no such date: change the day of month or the month")
	}
	return s, nil
}

// checkQuartz refuses expressions that were written for Quartz and would be due on other days here.
// Quartz counts the days of the week from Sunday as 1, and requires a ? in one of the two day
// fields. In six fields with a ?, numbers for days of the week are therefore most likely Quartz's.
func (c cronText) checkQuartz(fields []piece) error {
	if len(fields) != len(cronFields) || fields[3].text != "?" {
		return nil
	}
	for _, element := range fields[5].split(",") {
		days, _, _ := strings.Cut(element.text, "#")
		days, _, _ = strings.Cut(days, "/")
		if at := strings.IndexAny(days, "0123456789"); at >= 0 {
			return c.fault(element.at+at, "day of week: beside a ? this may be a number of Quartz, where 1 is "+
				"Sunday, and here 1 is Monday: use names, as in MON-FRI or FRI#2, or write * for the ?")
		}
	}
	return nil
}

// askLibrary calls the library's parser. If the library panics, askLibrary returns an error.
func askLibrary(spec string) (s *cron.SpecSchedule, err error) {
	defer recovered("the parser", &err)
	parsed, err := cronParser.Parse(strings.ToLower(spec)) // names and macros may be in any case
	if err != nil {
		return nil, err
	}
	s, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, fmt.Errorf("it is not a calendar, but a %T", parsed)
	}
	s.Location = time.UTC // Next is called in wall time; calendar applies the zone
	return s, nil
}

// A piece is a part of an expression and its byte offset.
type piece struct {
	at   int
	text string
}

// split splits a piece at each separator.
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

// fields splits the expression into fields. It returns an error for faults that concern the whole
// expression.
func (c cronText) fields() ([]piece, error) {
	spec := string(c)
	if len(spec) > cron.MaxSpecLength {
		return nil, c.fault(cron.MaxSpecLength, "it is %d bytes long: use at most %d", len(spec), cron.MaxSpecLength)
	}
	var fields []piece
	for _, f := range (piece{0, strings.NewReplacer("\t", " ", "\r", " ", "\n", " ").Replace(spec)}).split(" ") {
		if f.text != "" {
			fields = append(fields, f)
		}
	}
	if len(fields) == 0 {
		return nil, c.fault(0,
			`it is empty: use five fields (minute, hour, day of month, month, day of week), as in "30 2 * * *"`)
	}
	first := fields[0]
	switch name, _, zoned := strings.Cut(strings.ToUpper(first.text), "="); {
	case zoned && (name == "TZ" || name == "CRON_TZ"):
		return nil, c.fault(first.at, "the time zone is the second argument of Cron: take it out here")
	case strings.HasPrefix(first.text, "@"):
		return fields, c.checkWord(fields)
	}
	if i := strings.IndexFunc(spec, func(r rune) bool {
		return !strings.ContainsRune(cronBlanks+"*?,-/#", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') &&
			(r < 'a' || r > 'z')
	}); i >= 0 {
		return nil, c.fault(i, "a cron expression has no such character")
	}
	const usage = "use five fields (minute, hour, day of month, month, day of week), or six with the second in front"
	switch n := len(fields); {
	case n < 5:
		return nil, c.fault(len(strings.TrimRight(spec, cronBlanks)), "it ends after %d of 5 fields: %s", n, usage)
	case n > 6:
		return nil, c.fault(fields[6].at, "it has %d fields: %s", n, usage)
	}
	return fields, nil
}

var cronWords = []string{"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"}

func (c cronText) checkWord(fields []piece) error {
	word := strings.ToLower(fields[0].text)
	switch {
	case word == "@every":
		return c.fault(fields[0].at, "an interval is not cron: use schedule.Every")
	case word == "@reboot":
		return c.fault(fields[0].at, "a fleet has no start that all hosts agree on: call Trigger, or do it before Run")
	}
	for _, w := range cronWords {
		if w == word {
			if len(fields) > 1 {
				return c.fault(fields[1].at, "%s takes no further field", w)
			}
			return nil
		}
	}
	return c.fault(fields[0].at, "there is no such macro: use one of %s", strings.Join(cronWords, ", "))
}

// checkField finds the first fault in a field by parsing ever smaller pieces of the field with the
// library.
func (c cronText) checkField(field int, f piece) error {
	kind := cronFields[field]
	for _, element := range f.split(",") {
		if element.text == "" {
			return c.fault(element.at, "%s: a value is missing in the list", kind.name)
		}
		stepped := element.split("/")
		span := stepped[0]
		ends := span.split("-")
		for _, end := range ends {
			switch _, err := askField(field, end.text); {
			case end.text == "":
				return c.fault(end.at, "%s: a value is missing: use %s", kind.name, kind.takes)
			case err != nil:
				return c.fault(end.at, "%s: %s is not one of its values: use %s", kind.name, quote(end.text),
					kind.takes)
			case len(ends) > 1 && strings.Trim(end.text, "*?") == "":
				// The library ignores the rest of the piece.
				return c.fault(end.at, "%s: %s is not allowed in a range", kind.name, end.text)
			}
		}
		if _, err := askField(field, span.text); err != nil {
			return c.fault(ends[len(ends)-1].at, "%s: %s is not a range: write one as 1-5", kind.name, quote(span.text))
		}
		if len(stepped) == 1 {
			continue
		}
		step := stepped[1]
		if len(stepped) > 2 {
			return c.fault(step.at+len(step.text), "%s: there is more than one step", kind.name)
		}
		if _, err := askField(field, element.text); err != nil {
			return c.fault(step.at,
				"%s: %s is not a step here: use a number from 1 that is less than the number of values in the range",
				kind.name, quote(step.text))
		}
		if field == dayOfWeek && len(ends) > 1 && !stepsRight(ends[0], span, step) {
			return c.fault(element.at, "%s: steps over the end of a week are not supported: list the days", kind.name)
		}
	}
	return nil
}

// askField parses a single field with the library.
func askField(field int, text string) (*cron.SpecSchedule, error) {
	if strings.ContainsAny(text, "+"+cronBlanks) {
		return nil, errors.New("no value")
	}
	all := [...]string{"*", "*", "*", "*", "*", "*"}
	all[field] = text
	return askLibrary(strings.Join(all[:], " "))
}

// stepsRight reports whether the library steps through a range of weekdays as expected. It does not
// if the range crosses the end of the week, because it counts Sunday twice, as 7 and as 0.
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
