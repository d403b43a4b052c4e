package main

// clockLayer is the part of a store's conformance suite for a wrong clock.
func clockLayer(pkg, test string) layer {
	return layer{pkg: pkg, test: "^" + test + "$/^clock$/^was_2h0m0s_ahead$"}
}

// leasesOfClocks is the part of a conformance suite for leases granted while the clock was ahead.
func leasesOfClocks(test string) string {
	return "^" + test + "/^clock$/^leases_of_a_clock_that_was_ahead$"
}

// ofClocks are bugs in handling data written while a clock was ahead.
var ofClocks = []mutant{
	{
		name: "latest tick in the future believed",
		edits: []edit{{"internal/leasestate/leasestate.go",
			"if s.tick > latest.UnixMicro() {",
			"if false {"}},
		layer: clockLayer("dlock/memlock", "TestConformance"),
		says:  "a later tick has been claimed already",
	},
	{
		name: "ended pause comes back, in memory",
		edits: []edit{{"internal/leasestate/overrides.go",
			"*update.Resume, time.Time{}, at",
			"*update.Resume, at, at"}},
		layer: clockLayer("dlock/memlock", "TestConformance"),
		says:  `paused by ann`,
	},
	{
		name: "ended pause comes back, on Redis",
		edits: []edit{{"dlock/redislock/update.lua",
			"change('until', '0')",
			"change('until', int(micros))"}},
		layer: clockLayer("dlock/redislock", "TestConformanceMiniredis"),
		says:  `paused by ann`,
	},
	{
		name: "ended pause comes back, on SQLite",
		edits: []edit{{"dlock/sqllock/internal/sqlite/sql/control.sql",
			"paused_until >= {now} THEN NULL",
			"paused_until >= {now} THEN {now} - 1"}},
		layer: layer{pkg: "dlock/sqllock", test: "^TestConformanceSQLite$/^file$/^clock$/^was_2h0m0s_ahead$"},
		says:  `paused by ann`,
	},
	{
		name: "ended pause comes back, on Postgres",
		edits: []edit{{"dlock/sqllock/internal/postgres/sql/control.sql",
			"head.paused_until > v_clock THEN NULL",
			"head.paused_until > v_clock THEN v_clock"}},
		layer: layer{pkg: "dlock/sqllock", test: "^TestConformancePostgres$/^pgx$/^clock$/^was_2h0m0s_ahead$"},
		says:  `paused by ann`,
	},
	{
		name: "ended pause comes back, on MariaDB",
		edits: []edit{{"dlock/sqllock/internal/mysql/sql/control.sql",
			"paused_until > v_clock THEN NULL",
			"paused_until > v_clock THEN v_clock"}},
		layer: layer{pkg: "dlock/sqllock", test: "^TestConformanceMySQL$/^one_round_trip$/^clock$/^was_2h0m0s_ahead$"},
		says:  `paused by ann`,
	},
	{
		name: "release in the future believed, on Redis",
		edits: []edit{{"dlock/redislock/attempt.lua",
			"return at <= micros + ahead and at or 0",
			"return at"}},
		layer: clockLayer("dlock/redislock", "TestConformanceMiniredis"),
		says:  "a delay of a minute: .* must be granted",
	},
	{
		name: "success in the future believed",
		edits: []edit{{"internal/leasestate/leasestate.go",
			"&s.asked.since, &s.succeededAt, &s.releasedAt",
			"&s.asked.since, &s.releasedAt"}},
		layer: timers("^TestClocksThatStepTogether$"),
		says:  "every run fails, and the alarm is",
	},
	{
		name: "plan of a clock that was ahead kept",
		edits: []edit{{"timer/clock.go",
			"!before.at.IsZero() && steppedBack(",
			"false && steppedBack("}},
		layer: timers("^TestClocksThatStepTogether$"),
		says:  "has not run in its interval",
	},
	{
		name: "clock looked at after the ticks are planned",
		edits: []edit{{"timer/planner.go",
			"	p.look.setBack(time.Now(), p.now())\n	now := p.now()",
			"	now := p.now()"}},
		layer: timers("^TestClockSetBackBeforeTheFirstAnswer$"),
		says:  "0 runs of a timer of a second",
	},
	{
		name: "lease that lasts until a clock that was ahead",
		edits: []edit{{"dlock/redislock/slots.lua",
			"if late == 0 then return end",
			"if late then return end"}},
		layer: redis("^TestServerClockBack$"),
		says:  "what the dead host held was granted after",
	},
	{
		name: "lease that lasts until a clock that was ahead, in memory",
		edits: []edit{{"internal/leasestate/leasestate.go",
			"sl.renewedAt.After(latest) && sl.held(now)",
			"false && sl.held(now)"}},
		layer: layer{pkg: "dlock/memlock", test: leasesOfClocks("TestConformance$")},
		says:  "was still held",
	},
	{
		name: "lease that lasts until a clock that was ahead, on SQLite",
		edits: []edit{{"dlock/sqllock/internal/sqlite/snapshot.go",
			"if l.renewed > l.now+ahead {",
			"if l.renewed < 0 {"}},
		layer: layer{pkg: "dlock/sqllock", test: leasesOfClocks("TestConformanceSQLite$/^file$")},
		says:  "was still held",
	},
	{
		name: "lease that lasts until a clock that was ahead, on Postgres",
		edits: []edit{{"dlock/sqllock/internal/postgres/sql/acquire.sql",
			"IF v_leases.renewed_at > v_latest THEN",
			"IF false THEN"}},
		layer: layer{pkg: "dlock/sqllock", test: leasesOfClocks("TestConformancePostgres$/^pgx$")},
		says:  "was still held",
	},
	{
		name: "lease that lasts until a clock that was ahead, on MariaDB",
		edits: []edit{{"dlock/sqllock/internal/mysql/sql/acquire.sql",
			"IF v_o_expires > v_clock + INTERVAL p_ahead MICROSECOND THEN",
			"IF FALSE THEN"}},
		layer: layer{pkg: "dlock/sqllock", test: leasesOfClocks("TestConformanceMySQL$/^one_round_trip$")},
		says:  "was still held",
	},
	{
		name: "lease that ends when the clock is right again",
		edits: []edit{{"dlock/sqllock/internal/postgres/sql/acquire.sql",
			"SET expires_at = v_clock + (l.expires_at - l.renewed_at)",
			"SET expires_at = v_clock + interval '1 millisecond'"}},
		layer: layer{pkg: "dlock/sqllock", test: leasesOfClocks("TestConformancePostgres$/^pgx$")},
		says:  "was granted to another",
	},
	{
		name: "another host blamed for a clock that was ahead",
		edits: []edit{{"timer/explain.go",
			"case e.LastTickAhead:",
			"case false:"}},
		layer: timers("^TestClocksThatStepTogether$"),
		says:  "must say that the store's clock was ahead",
	},
	{
		name: "schedule planned by a clock that was ahead",
		edits: []edit{{"durable/internal/memory/worker.go",
			"				row.nextSpec = \"\"\n",
			""}},
		layer: runs("^TestDatabaseClockWasAhead$"),
		says:  "has no run after its clock was corrected",
	},
	{
		name: "schedule planned by a clock that was ahead, on SQLite",
		edits: []edit{{"durable/internal/sqlite/sql/worker.sql",
			"THEN '' ELSE s.next_spec END",
			"THEN s.next_spec ELSE s.next_spec END"}},
		layer: layer{pkg: "durable/internal/sqlite", test: "^TestSQLite$/^registering$"},
		says:  "Due does not have",
	},
}
