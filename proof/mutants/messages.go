package main

// ofMessages are bugs in package outbox.
var ofMessages = []mutant{
	{
		name: "a message marked before it is delivered",
		edits: []edit{{"outbox/delivery.go",
			"	result := guard.Go(\"sink\", func() error { return r.try(ctx, m) })\n",
			"	result := guard.Go(\"sink\", func() error { return r.try(ctx, m) })\n" +
				"	done(r.attempt(m, 0, nil, nil, false))\n	done = func(attempt) {}\n"}},
		layer: relays("^TestOutcomes$"),
		says:  `exhausted: \[ok\], want`,
	},
	{
		name: "a message that is given up after ten attempts",
		edits: []edit{{"outbox/delivery.go",
			"case crashed, r.config.Retry.MaxAttempts > 0 && tried >=",
			"case crashed, tried >= 10, r.config.Retry.MaxAttempts > 0 && tried >="}},
		layer: relays("^TestMessageIsTriedForAsLongAsReceiversRemember$"),
		says:  "the message was tried for",
	},
	{
		name: "a message that was requeued and is tried for longer than receivers remember",
		edits: []edit{{"outbox/delivery.go",
			"if m.Budget > 0 && m.Age-m.Failing < r.InboxRetention {",
			"if false {"}},
		layer: relays("^TestMessageIsTriedForAsLongAsReceiversRemember$"),
		says:  "requeued: ",
	},
	{
		name: "a message that is dead early because a clock was set forward",
		edits: []edit{{"outbox/delivery.go",
			"	return min(day, r.MaxElapsedTime/10)\n",
			"	return 1000 * day\n"}},
		layer: relays("^TestClockOfTheDatabaseIsSetForward$"),
		says:  "want it pending",
	},
	{
		name: "an instant of a clock that was ahead, believed by an outbox",
		edits: []edit{{"outbox/internal/sqlstore/sql/relay.sqlite.sql",
			"WHEN m.failing_since IS NULL OR m.failing_since > {now} - x.took THEN",
			"WHEN m.failing_since IS NULL THEN"}},
		layer: messages("^TestInstantOfAClockThatWasAhead$/^SQLite$"),
		says:  "want since now",
	},
	{
		name: "a message of which every attempt is kept",
		edits: []edit{{"outbox/internal/sqlstore/sql/relay.sqlite.sql",
			"WHERE m.attempts > {first_attempts} + {last_attempts});",
			"WHERE false AND m.attempts > {first_attempts} + {last_attempts});"}},
		layer: messages("^TestConformance$/^SQLite$/^failing$"),
		says:  "of 52 is number",
	},
	{
		name: "a requeued message that has failed before",
		edits: []edit{{"outbox/internal/sqlstore/sql/operator.sqlite.sql",
			"failing_since = NULL, ", ""}},
		layer: messages("^TestConformance$/^SQLite$/^failing$"),
		says:  "has not failed since it was requeued",
	},
	{
		name: "a failed message that holds nothing back",
		edits: []edit{{"outbox/shard.go",
			"	default:\n		s.forget(l)\n	}\n	l.unmarked++\n",
			"	default:\n	}\n	l.unmarked++\n"}},
		layer: relays("^TestOrderIsKeptThroughRetries$"),
		says:  "came after",
	},
	{
		name:  "a batch that was too large for its time, asked for again",
		edits: []edit{{"outbox/shard.go", "Limit: s.batch.Limit(), Topics", "Limit: c.BatchSize, Topics"}},
		layer: relays("^TestABatchThatIsTooLargeForItsTime$"),
		says:  "not within 10m0s: all are delivered",
	},
	{
		name: "messages to deliver without a bound in bytes",
		edits: []edit{{"outbox/internal/sqlstore/sql/relay.sqlite.sql",
			"WHERE r.ahead < {bytes}\n)\nSELECT l.shards",
			"WHERE r.ahead < 1000 * {bytes}\n)\nSELECT l.shards"}},
		layer: messages("^TestConformance$/^SQLite$/^due$"),
		says:  "the first four: 6 messages, full true; want 4, true",
	},
	{
		name: "a message in back-off that holds nothing back",
		edits: []edit{{"outbox/internal/sqlstore/sql/relay.sqlite.sql",
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
		says:  "two relays deliver a message at the same time",
	},
	{
		name: "a hand-over of shards that is not waited for",
		edits: []edit{{"outbox/election.go",
			"	if !r.waitForOldLayouts(ctx, layout) {\n",
			"	if false && !r.waitForOldLayouts(ctx, layout) {\n"}},
		layer: relays("^TestShardsChangeOnRealDatabases$/^SQLite$").asLongProof(),
		says:  "two deliveries at once",
	},
	{
		name: "an outbox that stands still for a row that it cannot read",
		edits: []edit{{"outbox/internal/sqlstore/relay.go",
			"	setID(&m.Message, id)\n	return nil\n", `	setID(&m.Message, id)
	if m.Fault != "" {
		return fmt.Errorf("message %x: %s", m.ID, m.Fault)
	}
	return nil
`}},
		layer: relays("^TestRowThatCannotBeRead$/^SQLite$"),
		says:  "the good messages are delivered",
	},
	{
		name: "a sink that tells the secret of its URL",
		edits: []edit{{"outbox/httpsink/httpsink.go",
			"		err = of.Err\n", "		_ = of\n"}},
		layer: layer{pkg: "outbox/httpsink", test: "^TestErrorsKeepTheSecretOfAURL$"},
		says:  "without a secret",
	},
	{
		name: "a result of an outbox that names the number of a row only",
		edits: []edit{{"outbox/internal/sqlstore/sql/relay.sqlite.sql",
			"AND {padded_id} = x.id AND m.attempts = x.attempts AND m.state = 'pending';",
			"AND m.attempts = x.attempts AND m.state = 'pending';"}},
		layer: messages("^TestConformance$/^SQLite$/^mark"),
		says:  "0 rows of history, want 0 attempts",
	},
	{
		name: "results of an outbox that wait for a locked row",
		edits: []edit{{"outbox/internal/sqlstore/sql/relay.postgres.sql",
			"FOR NO KEY UPDATE OF m SKIP LOCKED\n),\nwritten AS (",
			"FOR NO KEY UPDATE OF m\n),\nwritten AS ("}},
		layer: messages("^TestWhatALockedRowCosts$/^Postgres$"),
		says:  "Mark, one row is locked",
	},
	{
		name: "a result that is repeated and waits for a locked row",
		edits: []edit{{"outbox/internal/sqlstore/sql/relay.mysql.sql",
			"WHERE FIND_IN_SET(x.seq, @tickslot_marked);\n\n{where}{bounded} SELECT {hint} m",
			";\n\n{where}{bounded} SELECT {hint} m"}},
		layer: messages("^TestWhatALockedRowCosts$/^MariaDB$"),
		says:  "Mark, a row is locked that was written",
	},
	{
		name: "a result that waits for a transaction that was cut off",
		edits: []edit{{"outbox/internal/sqlstore/sql/relay.mysql.sql",
			"FROM {results_as_rows} AS x WHERE FIND_IN_SET(x.seq, @tickslot_marked);",
			"FROM {results_as_rows} AS x STRAIGHT_JOIN {messages} AS m FORCE INDEX (PRIMARY) ON m.seq = x.seq\n" +
				"WHERE m.message_id = UNHEX(x.id) AND m.attempts = x.attempts AND m.state = 'pending';"}},
		layer: layer{pkg: "outbox", test: "^TestMarkThatIsCutOff$/^MariaDB$"},
		says:  "not within",
	},
	{
		name: "a row without checks that gets no result on MariaDB",
		edits: []edit{{"outbox/internal/sqlstore/server.go",
			", check_constraint_checks = 0 FOR", " FOR"}},
		layer: layer{pkg: "outbox", test: "^TestRowThatCannotBeRead$/^MariaDB$"},
		says:  "not within",
	},
	{
		name: "a result of a deleted message that locks the end of the table",
		edits: []edit{{"outbox/internal/sqlstore/sql/relay.mysql.sql",
			" STRAIGHT_JOIN {messages} AS e FORCE INDEX (PRIMARY) ON e.seq = x.seq", ""}},
		layer: messages("^TestRelayLocksNoGapOnMySQL$"),
		says:  "Mark locks a gap",
	},
	{
		name: "an inbox outside the transaction",
		edits: []edit{{"outbox/internal/sqlstore/producer.go",
			"	return s.insert(ctx, tx, st, indexOfRecords)\n}\n", `	return s.insert(ctx, outside{s}, st, indexOfRecords)
}

type outside struct{ s *Store }

func (o outside) QueryRow(ctx context.Context, text string, args ...any) store.Row {
	return o.s.db.(server).db.QueryRowContext(ctx, text, args...)
}

func (o outside) Exec(ctx context.Context, text string, args ...any) (int64, error) {
	result, err := o.s.db.(server).db.ExecContext(ctx, text, args...)
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
		says:  "not within .*: the (good messages are delivered|other messages are delivered, too)",
	},
	{
		name: "deaths of relays that nobody counts",
		edits: []edit{{"outbox/shard.go",
			"wary: term.PreviousExpired()}", "wary: false && term.PreviousExpired()}"}},
		layer: relays("^TestMessageThatKillsItsRelay$"),
		says:  "20 relays died",
	},
	{
		name: "messages blamed that were beside the one that kills",
		edits: []edit{{"outbox/relay.go",
			"alone: make(chan struct{}, 1)", "alone: make(chan struct{}, 100)"}},
		layer: relays("^TestMessageThatKillsItsRelay$"),
		says:  "want the one message",
	},
	{
		name: "live messages behind all that is requeued",
		edits: []edit{{"outbox/internal/sqlstore/relay.go",
			"requeued > half && isFull", "requeued > half+len(list) && isFull"}},
		layer: messages("^TestConformance$/^SQLite$/^requeue"),
		says:  "were never requeued, want half",
	},
	{
		name: "requeued messages as old as their rows",
		edits: []edit{{"outbox/internal/sqlstore/sql/relay.sqlite.sql",
			"coalesce(m.requeued_at, m.created_at) AS since", "m.created_at AS since"}},
		layer: messages("^TestConformance$/^SQLite$/^stats"),
		says:  "want the time since it was requeued",
	},
	{
		name: "results of locked rows that stop a relay",
		edits: []edit{{"outbox/shard.go",
			"s.unmarked-s.held < 4*max(", "s.unmarked < 4*max("}},
		layer: relays("^TestManyRowsAreLocked$"),
		says:  "not within .*: they are delivered",
	},
	{
		name: "topics share places",
		edits: []edit{{"outbox/shard.go",
			"for len(t.ready) > 0 && t.active < c.MaxDeliveries && s.active < maxActive &&",
			"for len(t.ready) > 0 && s.active < c.MaxDeliveries && s.active < maxActive &&"}},
		layer: relays("^TestHangingTopicCostsOnlyItself$"),
		says:  "the messages of the other topic are delivered",
	},
	{
		name: "full topics are read on",
		edits: []edit{{"outbox/shard.go",
			"		FullTopics: full, StopOnDead",
			"		FullTopics: nil, StopOnDead"}},
		layer: relays("^TestHangingTopicCostsOnlyItself$"),
		says:  "messages in memory",
	},
	{
		name: "next of a key before the verdict is written",
		edits: []edit{{"outbox/shard.go",
			"		l.verdict = true\n",
			"		l.verdict = false\n"}},
		layer: relays("^TestVerdictIsWrittenBeforeTheNextOfItsKey$"),
		says:  "came after",
	},
	{
		name: "stopped relay goes on",
		edits: []edit{{"outbox/shard.go",
			"			if !s.term.Valid() { // also",
			"			if false { // also"}},
		layer: relays("^TestShardWhoseTermHasEndedBeginsNothing$"),
		says:  "deliveries after the term",
	},
	{
		name: "two results of a message in one call",
		edits: []edit{{"outbox/marker.go",
			"len(batch) < limit && !taken[u.result.Seq]:", "len(batch) < limit:"}},
		layer: relays("^TestRelayThatLeadsAgainHasTwoResults$"),
		says:  "two results of one row",
	},
	{
		name: "results behind one that is refused are not tried alone",
		edits: []edit{{"outbox/marker.go",
			"		batch = m.another()\n", "		batch = nil\n"}},
		layer: relays("^TestResultThatTheDatabaseRefuses$"),
		says:  "messages are dispatched",
	},
	{
		name: "a later result of a key is written before one that is refused",
		edits: []edit{{"outbox/marker.go",
			"u.message.Key != \"\" && keys[u.message.Key]", "false"}},
		layer: relays("^TestResultsOfAKeyAreWrittenInOrder$"),
		says:  "but a later message of its key is dispatched",
	},
	{
		name: "a relay that waits for connections as long as its driver does",
		edits: []edit{{"internal/pgxkit/own.go",
			"	BoundConnecting(config.ConnConfig)\n",
			"	_ = BoundConnecting\n"}},
		layer: relays("^TestConnectionsThatGetNoAnswer$"),
		says:  "the messages are dispatched",
	},
	{
		name: "results of locked rows that others put off for good",
		edits: []edit{{"outbox/marker.go",
			"case tried || k.again.IsZero():", "case tried || !now.Before(k.again):"}},
		layer: relays("^TestLockedRowIsFreeUnderLoad$"),
		says:  "after its row was unlocked",
	},
}
