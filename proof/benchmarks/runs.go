package main

import (
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/riverqueue/river"

	"github.com/tickslot/tickslot/durable"
)

// durablePlaces is how many concurrent runs a tickslot worker has in the burn-down.
const durablePlaces = 500

// asynqPlaces is how many concurrent tasks an asynq server has in the burn-down.
const asynqPlaces = 100

// longPoll is longer than the poll interval of every library.
const longPoll = 6500 * time.Millisecond

const (
	tickslotPostgres = "tickslot on Postgres"
	tickslotSQLite   = "tickslot on SQLite"
)

// durableName begins the names of the groups for durable runs.
const durableName = "durable: "

// durable returns the groups for durable runs.
func (l *lab) durable() []Group {
	list := []Group{l.burnDown(), l.triggered(), l.ahead(), l.ticks(), l.slots(), l.horizon()}
	if l.full {
		list = append(list, l.quiet())
	}
	for i := range list {
		list[i].Name = durableName + list[i].Name
	}
	return list
}

func (l *lab) onPostgres() durableSide { return durableSide{open: l.postgres.runs(false)} }

func onSQLiteFile() durableSide { return durableSide{open: newRunsOnSQLite} }

func (l *lab) river(config river.Config) side {
	return riverSide{postgres: l.postgres, config: config}.fleet
}

func (l *lab) tasks(config asynq.Config) side { return asynqSide{redis: l.redis, config: config}.fleet }

// rounds returns the number of rounds for groups with long windows.
func (l *lab) rounds(full int) int {
	if l.full {
		return full
	}
	return 1
}

func (l *lab) burnDown() Group {
	const workers = 2
	jobs := workers * 2_000
	if l.full {
		jobs = workers * 20_000
	}
	return Group{
		Name: fmt.Sprintf("%d no-ops, %d workers, with history", jobs, workers), Unit: "runs/s", Sharing: reopened,
		Rounds: l.rounds(3), Plot: "runs",
		Cases: []Case{
			burnsDown(tickslotPostgres, l.onPostgres().fleet, workers, durablePlaces, jobs),
			burnsDown("River", l.river(quick), workers, riverPlaces, jobs),
			burnsDown("asynq, nothing on disk", l.tasks(asynq.Config{}), workers, asynqPlaces, jobs),
			burnsDown(tickslotSQLite, onSQLiteFile().fleet, workers, durablePlaces, jobs),
			fullOnly(burnsDown("tickslot on Postgres, 16 runs per worker", l.onPostgres().fleet, workers,
				durable.DefaultMaxRuns, jobs)),
			fullOnly(burnsDown("asynq, each write synced", asynqSide{}.fleet, workers, asynqPlaces, jobs)),
		},
		Claims: []Claim{
			{Name: "no-op runs/s with history", Bound: 2000, Target: 1},
			{Name: "no-op runs/s with history beside River", Peer: "River"},
			{Name: "no-op runs/s with history beside asynq", Peer: "asynq, nothing on disk"},
		},
	}
}

// startClaims returns the claims of a group of starts.
func startClaims(what string) []Claim {
	return []Claim{
		{Name: what, Bound: 50, Target: 1, AtMost: true},
		{Name: what + ", on SQLite", Ours: tickslotSQLite, Bound: 50, Target: 1, AtMost: true},
	}
}

// starts returns a group with the defaults and, for other libraries, also with faster settings.
func (l *lab) starts(how occurrence) Group {
	ours, onSQLite := l.onPostgres(), onSQLiteFile()
	slow, often := riverSide{postgres: l.postgres}, riverSide{postgres: l.postgres, config: quick}
	if how.ticks {
		const each = int(time.Second / between)
		ours.ticking, onSQLite.ticking, slow.ticking, often.ticking = each, each, each, each
	}
	g := Group{
		Unit: "ms (p99)", Less: true, Sharing: caseByCase, Rounds: l.rounds(3), NoControl: !l.full,
		Window: l.window(1200*time.Millisecond, 10*time.Second),
		Cases: []Case{
			startsOf(tickslotPostgres, ours.fleet, how),
			startsOf(tickslotSQLite, onSQLite.fleet, how),
			fullOnly(startsOf("River, its defaults", slow.fleet, how)),
			fullOnly(startsOf("River, fetches every 2 ms", often.fleet, how)),
		},
	}
	if !how.ticks { // asynq does not tell a task when it was due
		looks := asynq.Config{TaskCheckInterval: 10 * time.Millisecond, DelayedTaskCheckInterval: 10 * time.Millisecond}
		g.Cases = append(g.Cases, fullOnly(startsOf("asynq, its defaults", l.tasks(asynq.Config{}), how)),
			fullOnly(startsOf("asynq, looks every 10 ms", l.tasks(looks), how)))
	}
	return g
}

func (l *lab) triggered() Group {
	g := l.starts(occurrence{})
	g.Name, g.Plot, g.Claims = "start of runs that are triggered one by one", "triggered",
		startClaims("p99 from trigger to start")
	return g
}

func (l *lab) ahead() Group {
	g := l.starts(occurrence{ahead: l.window(time.Second, longPoll)})
	g.Name, g.Plot, g.Claims = "start of runs that are scheduled ahead", "ahead", startClaims("p99 from due to start")
	return g
}

func (l *lab) ticks() Group {
	g := l.starts(occurrence{ticks: true})
	g.Name, g.Plot, g.Claims = "start of the runs of schedules", "ticks", startClaims("p99 from tick to start")
	return g
}

func (l *lab) slots() Group {
	perHandler, overAll, both := l.onPostgres(), l.onPostgres(), onSQLiteFile()
	limit := slotsOfAll.limit
	perHandler.handler.MaxConcurrency, overAll.config.MaxActive = limit, limit
	both.handler.MaxConcurrency, both.config.MaxActive = limit, limit
	g := Group{
		Name: fmt.Sprintf("slots in use, limit %d, %d workers with room for %d, jobs of %v to %v",
			limit, slotsOfAll.workers, slotsOfAll.places, shortestJob, longestJob),
		Unit: "% of the slots", Sharing: caseByCase,
		Window: l.window(1200*time.Millisecond, 15*time.Second), Rounds: l.rounds(3), NoControl: true, Plot: "slots",
		Claims: []Claim{
			{Name: "slots in use, MaxConcurrency", Bound: 95, Target: 1},
			{Name: "slots in use, MaxActive", Ours: "tickslot, MaxActive", Bound: 95, Target: 1},
		},
	}
	of := func(name string, s side) Case { return slotsOf(name, s, slotsOfAll, time.Duration(g.Rounds)*g.Window) }
	g.Cases = []Case{
		of("tickslot, MaxConcurrency", perHandler.fleet),
		of("tickslot, MaxActive", overAll.fleet),
		fullOnly(of("tickslot on SQLite, both limits", both.fleet)),
		fullOnly(of("tickslot, no limit in the fleet", l.onPostgres().fleet)),
		fullOnly(of("River, no limit in the fleet", l.river(river.Config{}))),
		fullOnly(of("River, no limit, fetches every 2 ms", l.river(quick))),
		fullOnly(of("asynq, no limit in the fleet", l.tasks(asynq.Config{}))),
	}
	return g
}

func (l *lab) horizon() Group {
	ours := l.onPostgres()
	const held = ", xmin held"
	return Group{
		Name: fmt.Sprintf("%d runs/s, an old transaction holds xmin", offeredRate), Unit: "runs/s", Sharing: reopened,
		Window: l.window(2*time.Second, 3*time.Minute), Rounds: 1, NoControl: true, Plot: "xmin",
		Cases: []Case{
			horizonOf("tickslot", ours.fleet, false),
			horizonOf("tickslot"+held, ours.fleet, true),
			fullOnly(horizonOf("River", l.river(quick), false)),
			fullOnly(horizonOf("River"+held, l.river(quick), true)),
		},
		Claims: []Claim{{Name: fmt.Sprintf("%d runs/s with xmin held", offeredRate), Ours: "tickslot" + held,
			Peer: "tickslot", Target: 0.65}},
	}
}

func (l *lab) quiet() Group {
	return Group{
		Name: fmt.Sprintf("%d idle workers with %d schedules", quietWorkers, quietSchedules),
		Unit: "statements/min", Less: true, Sharing: together, Window: 2 * time.Minute, Rounds: 1, NoControl: true,
		Cases: []Case{
			quietOf(tickslotPostgres, durableSide{open: l.postgres.runs(true), schedules: quietSchedules}.fleet),
			quietOf("River", riverSide{postgres: l.postgres, counted: true, periodic: quietSchedules}.fleet),
			quietOf("asynq, no schedules (commands of Redis)", l.tasks(asynq.Config{})),
		},
	}
}
