package main

import "strings"

// A mutant is one planted bug.
type mutant struct {
	name  string
	edits []edit
	layer layer
	// says is a regular expression for the words with which the layer reports the promise that the
	// bug breaks. Any other failure does not count.
	says string
}

// An edit replaces old, which occurs exactly once in the file, with new.
type edit struct{ file, old, new string }

// A layer is an existing check, run for as long as it needs.
type layer struct {
	pkg  string   // from the top of the repository, without "./"
	test string   // what to -run; "": the package is a program
	args []string // of the test, or of the program
	// alarm is the output of a real finding. Without it the layer may fail because too little
	// happened, on a machine that is busy. "": every failure is an alarm.
	alarm string
}

func (l layer) String() string {
	words := []string{"go", "run", "./" + l.pkg}
	if l.test != "" {
		words = []string{"go", "test", "./" + l.pkg, "-run", "'" + l.test + "'"}
	}
	return strings.Join(append(words, l.args...), " ")
}

var (
	// With these six seeds every kind of fault occurs, and each bug shows.
	simulation = layer{pkg: "internal/simulate", test: "^TestSimulate$",
		args: []string{"-seeds", "6", "-seed", "12", "-ttl", "15s"}, alarm: "promises were broken"}
	torture = layer{pkg: "internal/torture/fleet", args: []string{"-store", "redis", "-for", "20s", "-seed", "11"},
		alarm: `"broken":`}
)

func redis(test string) layer { return layer{pkg: "dlock/redislock", test: test} }

func timers(test string) layer { return layer{pkg: "timer", test: test} }

// With these seeds each bug shows.
var durableSimulation = layer{pkg: "durable", test: "^TestSimulate$",
	args: []string{"-simulate.seeds", "8", "-simulate.seed", "1"}}

func runs(test string) layer { return layer{pkg: "durable", test: test} }

func relays(test string) layer { return layer{pkg: "outbox", test: test} }

func messages(test string) layer { return layer{pkg: "outbox/internal/sqlstore", test: test} }

// Each bug is a plausible mistake: a naive implementation, or a slip in ours.
var mutants = []mutant{
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
		edits: []edit{{"timer/limits.go",
			"func (t Timer) slots() int { return min(t.MaxConcurrency, dlock.MaxSlots) }",
			"func (t Timer) slots() int { return min(t.MaxConcurrency+1, dlock.MaxSlots) }"}},
		layer: timers("^TestI1ValidRunsNeverExceedMaxConcurrency$"),
		says:  "runs at once, want exactly 3",
	},
	{
		name: "shared limit forgotten",
		edits: []edit{{"timer/acquire.go",
			".With(e.locks()...)",
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
		name: "run_id in place of replid",
		edits: []edit{
			{"dlock/redislock/acquire.lua", "redis.pcall('INFO', 'replication')", "redis.pcall('INFO', 'everything')"},
			{"dlock/redislock/acquire.lua", "string.match(told, '\\nmaster_replid:(%w+)')",
				"string.match(told, '\\nrun_id:(%w+)')"},
			{"dlock/redislock/acquire.lua", "'\\nmaster_replid:' .. sub(run", "'\\nrun_id:' .. sub(run"},
		},
		layer: redis("^TestI1FailoverAndBack$"),
		says:  "two valid leases of slot 0",
	},
	{
		name: "any sentinel is believed",
		edits: []edit{{"dlock/redislock/failover.go",
			"count[v] > len(m.sentinels)/2",
			"count[v] > 0"}},
		layer: redis("^TestHostsCutOffWithTheOldMaster$"),
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
			"wants := r != nil && r.Degraded()",
			"wants := false && r.Degraded()"}},
		layer: timers("^TestI1RejoinWithoutOverrun$"),
		says:  "while another of its own goes on without a slot",
	},
	{
		name: "a role released before its function has returned",
		edits: []edit{{"leader/term.go",
			"\t\te.ending(lease.Err())\n",
			"\t\te.ending(lease.Err())\n\t\t_ = lease.Release(ctx)\n"}},
		layer: layer{pkg: "leader", test: "^TestRoleIsReleasedWhenTheFunctionHasReturned$"},
		says:  "ending and leading",
	},
	{
		name: "release before return",
		edits: []edit{{"timer/runner.go",
			"\terr, panicked = call(&r.ctx, e.timer.Run)\n",
			`	type end struct {
		err      error
		panicked bool
	}
	returned := make(chan end, 1)
	go func() {
		err, panicked := call(&r.ctx, e.timer.Run)
		returned <- end{err, panicked}
	}()
	select {
	case end := <-returned:
		err, panicked = end.err, end.panicked
	case <-r.ctx.Done():
		err = context.Cause(&r.ctx)
	}
`}},
		layer: timers("^TestI8StuckHandlerIsNamedAndItsSlotExpires$"),
		says:  "want its slot until it expires",
	},
	{
		name: "a result without its attempt",
		edits: []edit{{"durable/internal/memory/worker.go",
			"if r == nil || r.Attempt != key.Attempt || r.Worker != worker {",
			"if r == nil {"}},
		layer: runs("^TestRunEndsBeforeAnotherHasIt$"),
		says:  "after the zombie's result",
	},
	{
		name: "a result by name, without its attempt",
		edits: []edit{{"durable/internal/memory/worker.go",
			"if r == nil || r.Attempt != key.Attempt || r.Worker != worker {",
			"if r == nil || r.Worker != worker {"}},
		layer: durableSimulation,
		says:  "two valid owners|counts, and the attempts are",
	},
	{
		name: "a renewal that revives",
		edits: []edit{{"durable/internal/memory/worker.go",
			"r := s.owned(worker, key)",
			"r := s.running[key.ID]"}},
		layer: runs("^TestDatabaseClockJumps$"),
		says:  "its context has not ended",
	},
	{
		name: "a renewal trusted from its answer on",
		edits: []edit{{"durable/renewer.go",
			"r.book.renewed(sent, keys, answer)",
			"sent = now()\n\tr.book.renewed(sent, keys, answer)"}},
		layer: runs("^TestTrustCountsFromTheRequest$"),
		says:  "renew: it ended",
	},
	{
		name: "a claim trusted from its answer on",
		edits: []edit{{"durable/claimer.go",
			"c.runner.start(row, sent, claimed.Now)",
			"c.runner.start(row, now(), claimed.Now)"}},
		layer: runs("^TestTrustCountsFromTheRequest$"),
		says:  "claim: it ended",
	},
	{
		name: "no local deadline of a run",
		edits: []edit{{"durable/leasebook.go",
			"wait := max(0, min(b.trust()-t.since(a.trustedFrom), sleepCheck))",
			"wait := time.Duration(1 << 60)"}},
		layer: runs("^TestRunEndsBeforeAnotherHasIt$"),
		says:  "ended after",
	},
	{
		name: "a claim that does not count",
		edits: []edit{{"durable/internal/memory/worker.go",
			"return max(0, limit-running)",
			"return limit"}},
		layer: runs("^TestLimits$"),
		says:  "at once, at most",
	},
	{
		name: "a claim beyond the room",
		edits: []edit{{"durable/claimer.go",
			"limit := min(c.batch, c.book.room())",
			"limit := c.batch"}},
		layer: runs("^TestLimits$"),
		says:  "calls on host-",
	},
	{
		name: "a lost attempt that does not count",
		edits: []edit{{"durable/internal/memory/worker.go",
			"case r.Attempt >= r.MaxAttempts:",
			"case false:"}},
		layer: runs("^TestRunThatKillsItsWorkersIsADeadLetter$"),
		says:  "lost",
	},
	{
		name: "a drain that gives nothing back",
		edits: []edit{{"durable/handler.go",
			"case errors.Is(cause, ErrDraining) && (mark == nil || !mark.permanent):",
			"case false:"}},
		layer: runs("^TestDrainGivesBack$"),
		says:  "not given back",
	},
	{
		name: "a coalesced tick that is lost",
		edits: []edit{{"durable/plan.go",
			"\tp.Coalesced = total - 1\n",
			""}},
		layer: runs("^TestCatchUp$"),
		says:  "ticks up to",
	},
	{
		name: "a tick that two workers queue",
		edits: []edit{{"durable/internal/memory/worker.go",
			"continue // somebody else was faster",
			"// somebody else was faster"}},
		layer: durableSimulation,
		says:  "ticks up to",
	},
	{
		name: "a result that is dropped",
		edits: []edit{{"durable/finisher.go",
			"\tif err != nil {\n\t\treturn batch, err\n",
			"\tif err != nil {\n\t\treturn nil, nil\n"}},
		layer: runs("^TestResultsAreKept$"),
		says:  "Places|State:",
	},
	{
		name: "a message marked before it is delivered",
		edits: []edit{{"outbox/delivery.go",
			"	result := make(chan error, 1)\n",
			"	result := make(chan error, 1)\n" +
				"	done(r.attempt(m, 0, nil, nil, false))\n	done = func(attempt) {}\n"}},
		layer: relays("^TestOutcomes$"),
		says:  `poison: \[ok\], want`,
	},
	{
		name: "a failed message that holds nothing back",
		edits: []edit{{"outbox/shard.go",
			"	if !goesOn {\n",
			"	if !goesOn && false {\n"}},
		layer: relays("^TestOrderIsKeptThroughRetries$"),
		says:  "came after",
	},
	{
		name: "a message in back-off that holds nothing back",
		edits: []edit{{"outbox/internal/sqlstore/internal/sqlite/free.sql",
			"AND e.tried > 0 AND e.key <> '' AND e.seq",
			"AND false AND e.key <> '' AND e.seq"}},
		layer: messages("^TestConformance$/^SQLite$/^due$"),
		says:  `"topica".* are due, want \["topicb" "topic" "topic"\]`,
	},
	{
		name: "a delivery that goes on after the lease",
		edits: []edit{{"outbox/shard.go",
			"		if !s.term.Valid() {\n",
			"		if !s.term.Valid() && false {\n"}},
		layer: relays("^TestDeliveryEndsWithTheLease$"),
		says:  "a message is delivered by two at once",
	},
	{
		name: "a hand-over of shards that is not waited for",
		edits: []edit{{"outbox/election.go",
			"	if !r.waitForOldLayouts(ctx, layout) {\n",
			"	if false && !r.waitForOldLayouts(ctx, layout) {\n"}},
		layer: relays("^TestShardsChangeOnRealDatabases$/^SQLite$"),
		says:  "two deliveries at once",
	},
	{
		name: "an inbox outside the transaction",
		edits: []edit{{"outbox/internal/sqlstore/producer.go",
			"	return s.insert(ctx, tx, st, dialect.IndexOfRecords)\n}\n", `	return s.insert(ctx, outside{s}, st, dialect.IndexOfRecords)
}

type outside struct{ s *Store }

func (o outside) QueryRow(ctx context.Context, text string, args ...any) store.Row {
	return o.s.pool.QueryRowContext(ctx, text, args...)
}

func (o outside) Exec(ctx context.Context, text string, args ...any) (int64, error) {
	result, err := o.s.pool.ExecContext(ctx, text, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}
`}},
		layer: messages("^TestConformance$/^Postgres$/^once$"),
		says:  "Once for .* false, <nil>, want true",
	},
	{
		name: "messages found by a cursor",
		edits: []edit{{"outbox/internal/memory/memory.go",
			"	blocked := map[string]bool{}\n	for _, seq := range slices.Sorted(maps.Keys(s.rows)) {\n" +
				"		m := s.rows[seq]\n		switch {\n",
			`	blocked, cursor := map[string]bool{}, int64(0)
	for seq, m := range s.rows {
		if m.State == store.StateDispatched {
			cursor = max(cursor, seq)
		}
	}
	for _, seq := range slices.Sorted(maps.Keys(s.rows)) {
		m := s.rows[seq]
		switch {
		case seq < cursor:
			continue
`}},
		layer: relays("^TestOrderIsKeptThroughRetries$"),
		says:  "not within .*: the (good ones are delivered|others, too)",
	},
}
