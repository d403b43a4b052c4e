package main

import (
	"slices"
	"strings"
)

// A mutant is one planted bug.
type mutant struct {
	name  string
	edits []edit
	layer layer
	// says is a regular expression for the words with which the layer reports the broken promise.
	// Any other failure does not count.
	says string
}

// An edit replaces old, which occurs exactly once in the file, with new.
type edit struct{ file, old, new string }

// A layer is an existing check, run for as long as it needs.
type layer struct {
	pkg  string   // path from the repository root, without "./"
	test string   // argument of -run; "": the package is a program
	args []string // for the test or the program
	// alarm matches the output of a real finding. Without the alarm, a failure may mean that too
	// little happened on a busy machine. "": every failure is an alarm.
	alarm string
	long  bool // a long proof, which other runs skip
}

// asLongProof returns the layer as a long proof.
func (l layer) asLongProof() layer {
	l.long = true
	return l
}

func (l layer) String() string {
	words := []string{"go", "run", "./" + l.pkg}
	if l.test != "" {
		words = []string{"go", "test", "./" + l.pkg, "-run", "'" + l.test + "'"}
	}
	if l.long {
		words = append([]string{longProofs}, words...)
	}
	return strings.Join(append(words, l.args...), " ")
}

var (
	// With these six seeds, every kind of fault occurs and each bug is found.
	simulation = layer{pkg: "proof/simulate", test: "^TestSimulate$",
		args: []string{"-seeds", "6", "-seed", "12", "-ttl", "15s"}, alarm: "promises were broken"}
	torture = layer{pkg: "proof/torture/fleet", args: []string{"-store", "redis", "-for", "20s", "-seed", "11"},
		alarm: `"broken":`}
)

func redis(test string) layer { return layer{pkg: "dlock/redislock", test: test} }

func timers(test string) layer { return layer{pkg: "timer", test: test} }

// With these seeds, each bug is found.
var durableSimulation = layer{pkg: "durable", test: "^TestSimulate$",
	args: []string{"-simulate.seeds", "8", "-simulate.seed", "1"}}

func runs(test string) layer { return layer{pkg: "durable", test: test} }

func runsOnPostgres(test string) layer { return layer{pkg: "durable/internal/postgres", test: test} }

func relays(test string) layer { return layer{pkg: "outbox", test: test} }

func messages(test string) layer { return layer{pkg: "outbox/internal/sqlstore", test: test} }

func postgres(test string) layer { return layer{pkg: "internal/pgxkit", test: test} }

// Each bug is a plausible mistake: a naive implementation, or a slip in ours.
var mutants = slices.Concat(ofLocksAndTimers, ofClocks, ofRuns, ofMessages)

var ofLocksAndTimers = []mutant{
	{
		name: "naive DEL",
		edits: []edit{{"dlock/redislock/release.lua",
			"local released = value and sub(value, 1, #mine) == mine",
			"local released = value"}},
		layer: torture,
		says:  `"broken":\[[^]]*not linearizable`,
	},
	{
		name: "trust counted from the reply",
		edits: []edit{{"dlock/heartbeat.go",
			"results, err := s.calls.extend(s.life, timeout, s.ttl, grants)\n",
			"results, err := s.calls.extend(s.life, timeout, s.ttl, grants)\n\tsent = now()\n"}},
		layer: simulation,
		says:  simulation.alarm,
	},
	{
		name: "no local deadline",
		edits: []edit{{"dlock/expiry.go",
			"wait := max(0, time.Until(at))",
			"wait := time.Duration(1 << 62)"}},
		layer: simulation,
		says:  simulation.alarm,
	},
	{
		name: "anyone may extend",
		edits: []edit{{"dlock/redislock/extend.lua",
			"elseif not value or string.sub(value, 1, #mine) ~= mine then",
			"elseif not value then"}},
		layer: redis("^TestConformanceSingle$/^extend$/^only"),
		says:  "extend by a stranger",
	},
	{
		name: "half TTL",
		edits: []edit{{"dlock/redislock/attempt.lua",
			"while not call('SET', key, value, 'NX', 'PX', ttl) do",
			"while not call('SET', key, value, 'NX', 'PX', int(ttl / 2)) do"}},
		layer: redis("^TestConformanceSingle$/^expiry$/^not"),
		says:  "was granted to another",
	},
	{
		name: "N+1",
		edits: []edit{{"timer/entry.go",
			"func (t Timer) slots() int { return min(t.MaxConcurrency, driver.MaxSlots) }",
			"func (t Timer) slots() int { return min(t.MaxConcurrency+1, driver.MaxSlots) }"}},
		layer: timers("^TestI1ValidRunsNeverExceedMaxConcurrency$"),
		says:  "runs at once, want exactly 3",
	},
	{
		name: "shared limit forgotten",
		edits: []edit{{"timer/acquire.go",
			".With(s.locks()...)",
			""}},
		layer: timers("^TestI1SharedLimitIsNeverExceeded$"),
		says:  "valid runs at once: want exactly 3",
	},
	{
		name: "driver retries on",
		edits: []edit{{"internal/rediskit/pool.go",
			"o.MaxRetries = -1   // d",
			"o.MaxRetries = 3 // a"}},
		layer: redis("^TestDriverRepeatsNothing$"),
		says:  "the server saw it",
	},
	{
		name: "pipelines shared across nodes",
		edits: []edit{{"dlock/redislock/batch.go",
			"nodes[node] = append(nodes[node], c)",
			"nodes[nil] = append(nodes[nil], c)"},
			{"dlock/redislock/batch.go",
				"node, err := cluster.MasterForKey(ctx, c.keys[0])",
				"_, err := cluster.MasterForKey(ctx, c.keys[0])"}},
		layer: redis("^TestHungNodeCostsOnlyItsOwnNames$"),
		says:  "extend: context deadline exceeded",
	},
	{
		name: "no quarantine",
		edits: []edit{{"dlock/redislock/acquire.lua",
			"if now < over then",
			"if false then"}},
		layer: redis("^TestI1I4ServerRestartedEmpty$"),
		says:  `OverLimit:[1-9]`,
	},
	{
		name: "one start more than the rate, on Redis",
		edits: []edit{{"dlock/redislock/shared.lua",
			"if sum >= o.rate then",
			"if sum > o.rate then"}},
		layer: redis("^TestConformanceSingle$/^rate$/^few"),
		says:  "starts within",
	},
	{
		name: "one start more than the rate, on Postgres",
		edits: []edit{{"dlock/sqllock/internal/postgres/sql/acquire.sql",
			"IF v_starts >= v_other.rate THEN",
			"IF v_starts > v_other.rate THEN"}},
		layer: layer{pkg: "dlock/sqllock", test: "^TestConformancePostgres$/^pgx$/^rate$/^few"},
		says:  "starts within",
	},
	{
		name: "one start more than the rate, on MariaDB",
		edits: []edit{{"dlock/sqllock/internal/mysql/sql/acquire.sql",
			"IF v_counted >= v_rate THEN",
			"IF v_counted > v_rate THEN"}},
		layer: layer{pkg: "dlock/sqllock", test: "^TestConformanceMySQL$/^one_round_trip$/^rate$/^few"},
		says:  "starts within",
	},
	{
		name: "run_id in place of replid",
		edits: []edit{
			{"dlock/redislock/acquire.lua", "redis.pcall('INFO', 'replication')", "redis.pcall('INFO', 'everything')"},
			{"dlock/redislock/acquire.lua", "string.match(told, '\\nmaster_replid:(%w+)')",
				"string.match(told, '\\nrun_id:(%w+)')"},
			{"dlock/redislock/acquire.lua", "'\\nmaster_replid:' .. sub(run", "'\\nrun_id:' .. sub(run"},
		},
		layer: redis("^TestI1FailoverAndBack$").asLongProof(),
		says:  "two valid leases of slot 0",
	},
	{
		name: "any sentinel is believed",
		edits: []edit{{"dlock/redislock/failover.go",
			"count[v] > len(m.sentinels)/2",
			"count[v] > 0"}},
		layer: redis("^TestHostsCutOffWithTheOldMaster$").asLongProof(),
		says:  "cut off: <nil>", // what one sentinel says was enough
	},
	{
		name: "a fault taken for an answer",
		edits: []edit{{"timer/storewatch.go",
			"\tc := b.saw(r.failure, r.notSetUp, r.renewal)\n",
			"\tif r.notSetUp {\n\t\tr.failure, r.notSetUp = nil, false\n\t}\n" +
				"\tc := b.saw(r.failure, r.notSetUp, r.renewal)\n"}},
		layer: timers("^TestI11RightRevokedLater$"),
		says:  "StoreReachable: <nil>",
	},
	{
		name: "a fault taken for silence",
		edits: []edit{{"timer/views.go",
			"switch why {\n\tcase ReasonStoreSetup:",
			"switch Reason(\"\") {\n\tcase ReasonStoreSetup:"}},
		layer: timers("^TestI11FaultIsNoReasonToRunEverywhere$"),
		says:  "runs of 30 ticks that the store found fault with",
	},
	{
		name: "rejoin without adopting",
		edits: []edit{{"timer/attach.go",
			"wants := run != nil && run.Degraded()",
			"wants := false && run.Degraded()"}},
		layer: timers("^TestI1RejoinWithoutOverrun$"),
		says:  "while another of its own goes on without a slot",
	},
	{
		name: "a role released before its function has returned",
		edits: []edit{{"leader/elector.go",
			"\t\te.ending(lease.Err())\n",
			"\t\te.ending(lease.Err())\n\t\t_ = lease.Release(ctx)\n"}},
		layer: layer{pkg: "leader", test: "^TestRoleIsReleasedWhenTheFunctionHasReturned$"},
		says:  "ending and leading",
	},
	{
		name: "release before return",
		edits: []edit{{"timer/runner.go",
			"\t\t\terr := s.timer.Run(&run.ctx)\n",
			`			ended := make(chan error, 1)
			go func() { ended <- s.timer.Run(&run.ctx) }()
			var err error
			select {
			case err = <-ended:
			case <-run.ctx.Done():
				err = context.Cause(&run.ctx)
			}
`}},
		layer: timers("^TestI8StuckHandlerIsNamedAndItsSlotExpires$"),
		says:  "want its slot until it expires",
	},
	{
		name: "a service that has stopped and drains again",
		edits: []edit{{"internal/lifecycle/life.go",
			"order[phase] > order[l.Phase()]",
			"order[phase] != order[l.Phase()]"}},
		layer: layer{pkg: "internal/lifecycle", test: "^TestPhasesGoForward$"},
		says:  "want draining",
	},
	{
		name: "a log that a receiver which is down fills",
		edits: []edit{{"internal/notify/reporter.go",
			"if m.logged < maxPerMinute {",
			"if true {"}},
		layer: layer{pkg: "internal/notify", test: "^TestLinesOfOneKindAreBounded$"},
		says:  "it failed",
	},
	{
		name: "MaxPerTick follows MaxConcurrency silently",
		edits: []edit{{"timer/config.go",
			"!t.LocalOnly && limitOf(t.MaxConcurrency) > 1",
			"!t.LocalOnly && limitOf(t.MaxConcurrency) > maxLimit"}},
		layer: timers("^TestMaxPerTickIsSaid$"),
		says:  "New: <nil>, want an error",
	},
	{
		name: "form of bytes left to the role",
		edits: []edit{{"internal/sqlkit/postgres_pinned.sql",
			"	pg_catalog.set_config('bytea_output', 'hex', true),\n", ""}},
		layer: postgres("^TestSettingsArePinned$"),
		says:  `bytea_output is "escape"`,
	},
	{
		name: "draining host gives up a tick that it was granted",
		edits: []edit{{"timer/acquire.go",
			"return claimed && lease != nil && a.runner.base.Err() == nil",
			"return claimed && lease != nil && a.registry.starting()"}},
		layer: timers("^TestGracefulRestartsLoseNoTick$"),
		says:  "of 4000 ticks ran nowhere",
	},
	{
		name: "worker of another environment begins nevertheless",
		edits: []edit{{"internal/lifecycle/life.go",
			"	if err := l.Refused(); err != nil {\n		return err\n	}\n	err := work",
			"	if err := l.Refused(); false {\n		return err\n	}\n	err := work"}},
		layer: runs("^TestWorkerOfAnotherEnvironment$"),
		says:  "the worker has registered",
	},
	{
		name: "registry asks for the environment once only",
		edits: []edit{{"cluster/loop.go",
			"	if l.wrote {\n\t\tr.admission.ask() // if the store has not answered yet\n", "	if false {\n"}},
		layer: layer{pkg: "cluster", test: "^TestPartsOfAnotherEnvironment$"},
		says:  "does not stop",
	},
	{
		name: "page shows errors as drivers make them",
		edits: []edit{{"cluster/page/internal/readcache/readcache.go",
			"time.Now(), mask.Error(r.Err), nil",
			"time.Now(), errors.Join(mask.Error(nil), r.Err), nil"}},
		layer: layer{pkg: "internal/mask", test: "^TestSecretsInErrorsLeaveNowhere$"},
		says:  "s3cr3t-Canary",
	},
	{
		name: "log that hides no secrets",
		edits: []edit{{"internal/mask/handler.go",
			"a.Value = slog.AnyValue(Error(err))",
			"a.Value = slog.AnyValue(err)"}},
		layer: layer{pkg: "internal/mask", test: "^TestSecretsInErrorsLeaveNowhere$"},
		says:  "s3cr3t-Canary",
	},
	{
		name:  "store learns of no schedule before its first tick is claimed",
		edits: []edit{{"timer/announce.go", "if s.unannounced() {\n\t\t\tnext, _", "if false {\n\t\t\tnext, _"}},
		layer: timers("^TestAFirstTickInARestartIsCaughtUp$"),
		says:  "after the restart: 0 runs",
	},
	{
		name:  "missed tick of a weekly interval is skipped by default",
		edits: []edit{{"schedule/calendar.go", "return s.period >= 24*time.Hour", "return false"}},
		layer: timers("^TestAWeeklyIntervalSurvivesDeploys$"),
		says:  "after a deploy: ",
	},
	{
		name:  "schedules are announced without a pause",
		edits: []edit{{"timer/announce.go", "a.after(pause)", "a.after(min(pause, 1))"}},
		layer: timers("^TestAnnouncementsAreFew$"),
		says:  "in one second",
	},
	{
		name:  "place of a run that ended is not offered to triggers",
		edits: []edit{{"timer/runner.go", "if !r.triggers.runEnded(s) {", "{"}},
		layer: timers("^TestTriggersBesideABusyLimit$"),
		says:  "triggers ran after",
	},
	{
		name:  "ticks do not wait for a trigger that is being started",
		edits: []edit{{"timer/gate.go", "return wait > 0 && g.waiting", "return wait < 0 && g.waiting"}},
		layer: timers("^TestTriggersBesideABusyLimit$"),
		says:  "triggers ran after",
	},
	{
		name: "row level security that nobody asks about",
		edits: []edit{{"internal/sqlkit/hidden.go",
			`if tables == "" {`,
			`if tables != "-" {`}},
		layer: layer{pkg: "internal/sqlkit", test: "^TestRowLevelSecurityIsFound$"},
		says:  "must name the table and say what to do",
	},
}
