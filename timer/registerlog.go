package timer

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tickslot/tickslot/schedule"
)

// Up to maxLines timers that are registered together have a line each; of more, those with the same
// limits share a line at Info, and each has its own at Debug.
const maxLines = 20

// logRegistered logs the limits of new timers, defaults filled in. Called without a mutex held.
func logRegistered(log *lineLog, level slog.Level, list []*settings, hasStore bool) {
	list = slices.SortedFunc(slices.Values(list), func(a, b *settings) int {
		return strings.Compare(a.timer.Name,
			b.timer.Name)
	})
	if len(list) > maxLines {
		logTogether(log, level, list, hasStore)
		level = slog.LevelDebug
	}
	if !log.Enabled(context.Background(), level) {
		return
	}
	for _, s := range list {
		logSettings(log, level, "timer: registered", s, hasStore)
	}
}

// logSettings logs the limits of one timer.
func logSettings(log *lineLog, level slog.Level, text string, s *settings, hasStore bool) {
	due := "none"
	if s.timer.Schedule != nil {
		due = schedule.Describe(s.timer.Schedule)
	}
	log.Log(context.Background(), level, text,
		append([]any{"timer", s.timer.Name, "schedule", due}, resolvedOf(s.timer, hasStore).args()...)...)
}

// logTogether logs how many timers have the same limits, the most frequent first.
func logTogether(log *lineLog, level slog.Level, list []*settings, hasStore bool) {
	type together struct {
		resolved
		first string
		n     int
	}
	var groups []together
	found := make(map[resolved]int)
	for _, s := range list {
		l := resolvedOf(s.timer, hasStore)
		i, ok := found[l]
		if !ok {
			i = len(groups)
			found[l] = i
			groups = append(groups, together{resolved: l, first: s.timer.Name})
		}
		groups[i].n++
	}
	slices.SortStableFunc(groups, func(a, b together) int { return cmp.Compare(b.n, a.n) })
	for _, g := range groups[:min(len(groups), maxLines)] {
		log.Log(context.Background(), level, "timer: registered",
			append([]any{"timers", g.n, "first", g.first}, g.args()...)...)
	}
	if left := len(groups) - maxLines; left > 0 {
		log.Log(context.Background(), level, "timer: registered more, which Status shows",
			"different_limits", left)
	}
}

// resolved has the settings of a timer that limit its runs.
type resolved struct {
	concurrency, perTick, perHost int
	runTime                       time.Duration
	catchUp                       CatchUpPolicy
	shared                        bool
	storeDown                     StoreDownPolicy // if shared
	limits                        string          // that it shares with other timers
}

func resolvedOf(t Timer, hasStore bool) resolved {
	r := resolved{concurrency: t.MaxConcurrency, perTick: t.MaxPerTick, perHost: t.MaxPerHost, runTime: t.MaxRunTime,
		catchUp: t.CatchUp.Policy, limits: strings.Join(t.Limits, ", ")}
	if r.shared = hasStore && !t.LocalOnly; r.shared {
		r.storeDown = t.OnStoreDown
	}
	return r
}

func (r resolved) args() []any {
	args := []any{"max_concurrency", limitText(r.concurrency), "max_per_tick", limitText(r.perTick), "max_per_host",
		limitText(r.perHost), "max_run_time", timeText(r.runTime)}
	if r.shared {
		args = append(args, "on_store_down", r.storeDown.String())
	} else {
		args = append(args, "shared", false)
	}
	if r.limits != "" {
		args = append(args, "limits", r.limits)
	}
	return append(args, "catch_up", r.catchUp.String())
}

func limitText(limit int) string {
	if limit == unlimited {
		return "none"
	}
	return strconv.Itoa(limit)
}

func timeText(limit time.Duration) string {
	if limit == math.MaxInt64 {
		return "none"
	}
	return limit.String()
}
