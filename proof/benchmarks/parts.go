package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// A part is a chapter of RESULTS.md with its own date and machine. It can be measured alone, and
// the figures of the other parts are kept.
type part struct {
	title    string
	has      func(group string) bool
	settings string
}

func isDurable(group string) bool { return strings.HasPrefix(group, durableName) }

func isOutbox(group string) bool { return strings.HasPrefix(group, outboxName) }

// parts lists all parts in the order of RESULTS.md.
var parts = []part{
	{"Locks and timers", func(group string) bool { return !isDurable(group) && !isOutbox(group) }, settings},
	{"Durable runs", isDurable, durableSettings},
	{"Outbox", isOutbox, outboxSettings},
}

// of returns the results that belong to the part.
func (p part) of(all []Result) (mine []Result) {
	for _, r := range all {
		if p.has(r.Group.Name) {
			mine = append(mine, r)
		}
	}
	return mine
}

// whole returns an error if a pattern matches only some groups of a part, because the figures of
// the others would be lost.
func whole(groups []Group, only *regexp.Regexp) error {
	var errs []error
	for _, p := range parts {
		matched, all := 0, 0
		for _, g := range groups {
			if !p.has(g.Name) {
				continue
			}
			all++
			if only.MatchString(g.Name) {
				matched++
			}
		}
		if matched > 0 && matched < all {
			errs = append(errs, fmt.Errorf("-results: -only matches %d of the %d groups of %q: it has to match all of "+
				"them, or none", matched, all, p.title))
		}
	}
	return errors.Join(errs...)
}

// heading returns the heading of a chapter.
func heading(title string) string { return "\n## " + title + "\n" }

// chapters returns the chapters of a file by title, including their headings.
func chapters(text string) map[string]string {
	list := map[string]string{}
	for _, p := range parts {
		_, rest, found := strings.Cut(text, heading(p.title))
		if !found {
			continue
		}
		if end := strings.Index(rest, "\n## "); end >= 0 {
			rest = rest[:end]
		}
		list[p.title] = heading(p.title) + strings.TrimRight(rest, "\n") + "\n"
	}
	return list
}

// An occasion is the time and place of a measurement.
type occasion struct {
	began   time.Time
	warning string   // that the figures say little, or ""
	machine []string // including versions
}

// write writes the results to RESULTS.md, and leaves the other parts unchanged.
func write(folder string, all []Result, o occasion) error {
	path := filepath.Join(folder, "RESULTS.md")
	before, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	list := chapters(string(before))
	for _, p := range parts {
		mine := p.of(all)
		if len(mine) == 0 {
			continue
		}
		if list[p.title], err = p.chapter(folder, mine, o); err != nil {
			return err
		}
	}
	text := "# Results\n" + about
	for _, p := range parts {
		text += list[p.title]
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// chapter returns the part as Markdown.
func (p part) chapter(folder string, mine []Result, o occasion) (string, error) {
	var b strings.Builder
	b.WriteString(heading(p.title))
	var took time.Duration
	for _, r := range mine {
		took += r.Took
	}
	fmt.Fprintf(&b, "\nMeasured on %s, in %v.\n", o.began.UTC().Format("2006-01-02 15:04 UTC"), took.Round(time.Second))
	b.WriteString(o.warning)
	b.WriteString("\n### Targets\n\n| what | tickslot | peer | ratio | target | met | control |\n" +
		"|---|---|---|---|---|---|---|\n")
	for _, r := range mine {
		for _, v := range r.Verdicts {
			b.WriteString(v.row())
		}
	}
	plots, err := plot(folder, mine)
	if err != nil {
		return "", err
	}
	if len(plots) > 0 {
		b.WriteString("\n### Plots\n\n")
	}
	for _, p := range plots {
		fmt.Fprintf(&b, "![%s](%s)\n\n", p.title, p.file)
	}
	b.WriteString("### Groups\n")
	for _, r := range mine {
		b.WriteString(r.table())
	}
	b.WriteString("\n### Settings\n\n" + p.settings + "\n### Machine and versions\n\n")
	for _, line := range o.machine {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	return b.String(), nil
}
