package health

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Join combines several sources into one. The combined Source is live, started and ready if all of
// its sources are. Its errors begin with the name of the source, and its checks are named
// source.check, such as outbox.few-dead-messages. A nil source has no checks, and is live, started
// and ready.
func Join(sources map[string]Source) Source {
	own := maps.Clone(sources)
	maps.DeleteFunc(own, func(_ string, source Source) bool { return source == nil })
	return joined{own, slices.Sorted(maps.Keys(own))}
}

type joined struct {
	sources map[string]Source
	names   []string // the names of the sources, sorted
}

func (j joined) Live() error    { return j.each(Source.Live) }
func (j joined) Started() error { return j.each(Source.Started) }
func (j joined) Ready() error   { return j.each(Source.Ready) }

func (j joined) Checks() map[string]func() error {
	all := map[string]func() error{}
	for _, name := range j.names {
		for check, f := range j.sources[name].Checks() {
			all[name+"."+check] = f
		}
	}
	return all
}

func (j joined) each(ask func(Source) error) error {
	var faults []error
	for _, name := range j.names {
		if err := ask(j.sources[name]); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(faults...)
}
