package commands

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tickslot/tickslot/timer/control"
)

// maxNearest is the maximum number of similar names offered for an unknown name.
const maxNearest = 3

// checkTimer returns an error unless the registry or the store of the locks knows a timer with the
// given name. Only the registry knows a timer that has not run yet. If hosts do not use package
// cluster, only the store knows which timers have run, and their overrides.
func (a *app) checkTimer(ctx context.Context, name string) error {
	var names []string
	s, unread := a.snapshot(ctx)
	if unread == nil {
		for _, t := range s.Timers() {
			names = append(names, t.Name)
		}
	}
	if slices.Contains(names, name) {
		return nil
	}
	ctl := a.timerControl()
	known, err := ctl.Known(ctx, name)
	if err != nil || known {
		return err
	}
	state, err := ctl.Inspect(ctx, name)
	if err != nil || state.Pause != nil || state.Limit != nil {
		return err
	}
	waiting, err := ctl.Triggers(ctx, name)
	if err != nil || len(waiting) > 0 {
		return err
	}
	err = unknownName("timer", name, names)
	switch {
	case unread != nil:
		return fmt.Errorf("%w; the registry, which knows those that have not run yet, cannot be read: %w", err, unread)
	case a.unregistered:
		return fmt.Errorf("%w; %s", err, a.noHosts("timers that have not run yet are not known"))
	}
	return err
}

// noHosts describes the consequences if no process writes to the registry.
func (a *app) noHosts(follows string) string {
	text := "no process of this store uses package cluster"
	if follows != "" {
		text += ", so " + follows
	}
	return text + ", or the hosts have another " + a.elsewhere()
}

// elsewhere returns the flags that can make a command read the wrong place.
func (a *app) elsewhere() string {
	if a.store.Kind == "redis" {
		return "--prefix"
	}
	return "--schema, --prefix or --registry-table"
}

// checkHandler returns an error unless the database knows this handler of durable runs.
func (a *app) checkHandler(ctx context.Context, name string) error {
	list, err := a.store.Durable.Handlers(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, h := range list {
		if !h.SeenAt.IsZero() || h.Queued+h.Running+h.Dead > 0 || h.Pause != nil || h.Override != nil {
			names = append(names, h.Name)
		}
	}
	if slices.Contains(names, name) {
		return nil
	}
	schedules, err := a.store.Durable.Schedules(ctx)
	if err != nil {
		return err
	}
	for _, s := range schedules {
		if s.Name == name {
			return fmt.Errorf("%q is a schedule, of handler %q: use --schedule in place of --durable, or "+
				"the handler's name", name, s.Handler)
		}
	}
	return unknownName("handler of durable runs", name, names)
}

// checkSchedule returns an error unless the database knows this schedule of durable runs.
func (a *app) checkSchedule(ctx context.Context, name string) error {
	list, err := a.store.Durable.Schedules(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, s := range list {
		if !s.SeenAt.IsZero() || s.Pause != nil {
			names = append(names, s.Name)
		}
	}
	if slices.Contains(names, name) {
		return nil
	}
	return unknownName("schedule", name, names)
}

// timerControl returns the Control of the fleet's timers. Names are checked beforehand, so it has
// nothing to log.
func (a *app) timerControl() *control.Control {
	return control.New(control.Config{Store: a.store.Locks})
}

// An unknownNameError reports an unknown name and similar known names.
type unknownNameError struct {
	what, name string
	like       []string
}

func (u *unknownNameError) Error() string {
	text := fmt.Sprintf("no %s %q is known", u.what, u.name)
	if len(u.like) > 0 {
		text += fmt.Sprintf("; did you mean %s?", strings.Join(u.like, ", "))
	}
	return text
}

func unknownName(what, name string, names []string) error {
	return &unknownNameError{what, name, nearest(name, names)}
}

// nearest returns the known names most similar to name, the most likely first.
func nearest(name string, names []string) []string {
	type candidate struct {
		name string
		away int
	}
	var list []candidate
	bound := max(2, utf8.RuneCountInString(name)/3)
	for _, n := range names {
		away := distance(strings.ToLower(name), strings.ToLower(n))
		if strings.Contains(n, name) || len(n) > 3 && strings.Contains(name, n) {
			away = min(away, bound)
		}
		if n != "" && away <= bound {
			list = append(list, candidate{n, away})
		}
	}
	slices.SortFunc(list, func(x, y candidate) int {
		return cmp.Or(cmp.Compare(x.away, y.away), strings.Compare(x.name, y.name))
	})
	var like []string
	for _, c := range list[:min(len(list), maxNearest)] {
		like = append(like, c.name)
	}
	return like
}

// distance returns how many letters must be changed, added, removed, or swapped with the next one,
// to turn one text into the other.
func distance(one, two string) int {
	a, b := []rune(one), []rune(two)
	var before, last []int // the rows for the two previous letters
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range a {
		before, last, row = last, row, make([]int, len(b)+1)
		row[0] = i + 1
		for j := range b {
			changed := last[j]
			if a[i] != b[j] {
				changed++
			}
			row[j+1] = min(changed, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}
