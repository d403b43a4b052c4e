package main

// databaseRows are the protections against faults between a store and its server: sessions,
// networks, batches.
var databaseRows = []row{
	{"what sessions begin with changes no answer, or is refused by name", map[string]string{
		"memlock, caslock, redislock, redlock, registry memory, registry redis": "no: it has no sessions with settings",
		"sqllock sqlite, durable sqlite, outbox sqlite, registry sqlite": "" +
			"no: a file has no roles or databases with settings",
		"nativelock": "no: its locks are functions of the server, which no setting changes",
		"sqllock postgres": "dlock/sqllock.TestSessionsWithOtherSettingsPostgres; " +
			"internal/pgxkit.TestSettingsArePinned",
		"sqllock mysql": "dlock/sqllock.TestSettingsOfTheSessionMySQL; " +
			"dlock/sqllock.TestMigrateUnderAnySQLModeMySQL",
		"timer, leader": "no: its store sends the statements",
		"durable postgres": "durable/internal/postgres.TestTransactionsHaveTheirOwnSettings; " +
			"durable/internal/postgres.TestAnswersAreReadWhateverTheirFormIs; durable.TestSetUpsOfPostgres",
		"outbox postgres":   "outbox/internal/sqlstore.TestSessionsWithOtherSettings/Postgres",
		"outbox mysql":      "outbox/internal/sqlstore.TestSessionsWithOtherSettings/MariaDB",
		"registry postgres": "cluster/sqlregistry.TestSessionsWithOtherSettings/Postgres",
		"registry mysql":    "cluster/sqlregistry.TestSessionsWithOtherSettings/MariaDB",
		"people":            shows,
		"SQL Server":        sqlServer,
	}},
	{"a client that is cut off in the middle of what it sends costs the rows that it has locked", map[string]string{
		"caslock":                  "no: a write arrives whole or not at all, and locks nothing",
		"memlock, registry memory": "no: it calls no server",
		"redislock, redlock, registry redis": "" +
			"no: a server executes a command when it has all of it",
		"sqllock sqlite, durable sqlite, outbox sqlite, registry sqlite": "no: it has no network",
		"sqllock postgres": "internal/pgxkit.TestClientThatIsCutOffInThePipeline",
		"sqllock mysql, registry postgres, registry mysql": "" +
			"no: a call is one statement, which the server executes when it has all of it",
		"nativelock": "" +
			"no: the lock is that of the connection, and is free when the server gives that up, as its doc says",
		"timer, leader": "no: its store calls the server",
		"durable postgres": "internal/pgxkit.TestClientThatIsCutOffInThePipeline; " +
			"durable/internal/postgres.TestClientThatStopsInTheMiddle",
		"outbox postgres": "outbox.TestMarkThatIsCutOff/Postgres",
		"outbox mysql":    "outbox.TestMarkThatIsCutOff/MariaDB",
		"people":          shows,
		"SQL Server":      sqlServer,
	}},
	{"a batch that was too large for its time is halved", map[string]string{
		"memlock, caslock, redislock, redlock, nativelock, SQL locks, SQL Server": "" +
			"no: a call is about few leases of some bytes",
		"timer, leader": "no: it sends no batches",
		"durable":       "internal/answers.TestBatchesThatAreTooLargeAreHalved",
		"outbox": "outbox.TestABatchThatIsTooLargeForItsTime; outbox.TestLargeMessagesOnASlowLink; " +
			"internal/answers.TestABatchFindsWhatALinkCarries",
		"registry": "no: what it does not write now is written by the next heartbeat, and it is a view",
		"people":   shows,
	}},
	{"a row that the database refuses costs only itself", map[string]string{
		"memlock, caslock, redislock, redlock, nativelock, SQL locks, SQL Server": "" +
			"no: each name has an error of its own",
		"timer, leader": "no: the store answers for each name",
		"durable":       "durable.TestResultThatTheDatabaseRefuses",
		"outbox": "outbox.TestResultThatTheDatabaseRefuses; outbox.TestResultThatATriggerRefuses; " +
			"outbox.TestResultsAfterAnOutage; outbox.TestRelayThatLeadsAgainHasTwoResults",
		"registry": "no: a heartbeat writes the rows of its own process",
		"people":   shows,
	}},
	{"a kind of call that always fails is seen beside others that succeed", map[string]string{
		"memlock, caslock, redislock, redlock, nativelock, SQL locks, SQL Server": "no: who calls it judges",
		"timer":    "timer.TestRenewalsDoNotHideThatNothingIsGranted",
		"leader":   "no: the two calls that it makes renew, or ask for, one lease",
		"durable":  "durable.TestCallThatAlwaysFailsIsSeen",
		"outbox":   "outbox.TestCallThatAlwaysFailsIsSeen",
		"registry": "cluster.TestSweepThatAlwaysFailsIsSeen",
		"people":   "no: each request shows the error of its own call",
	}},
	{"a first tick that comes due while every host restarts is caught up", map[string]string{
		"caslock":          "dlock/caslock.TestConformance/missed/a first tick that was asked about",
		"memlock":          "dlock/memlock.TestConformance/missed/a first tick that was asked about",
		"redislock":        "dlock/redislock.TestConformanceMiniredis/missed/a first tick that was asked about",
		"redlock":          "no: it keeps no latest tick",
		"sqllock postgres": "dlock/sqllock.TestConformancePostgres/pgx/missed/a first tick that was asked about",
		"sqllock mysql": "" +
			"dlock/sqllock.TestConformanceMySQL/one round trip/missed/a first tick that was asked about",
		"sqllock sqlite": "dlock/sqllock.TestConformanceSQLite/file/missed/a first tick that was asked about",
		"nativelock":     "no: it knows no ticks",
		"timer":          "timer.TestAFirstTickInARestartIsCaughtUp; timer.TestAFirstTickOnRealServers",
		"leader":         "no: it has no ticks",
		"durable":        "durable.TestCatchUp",
		"outbox":         "no: it has no ticks",
		"registry":       "no: it has no ticks",
		"people":         shows,
		"SQL Server":     sqlServer,
	}},
	{"what waits for a shared limit gets its turn beside what keeps it busy", map[string]string{
		"memlock, caslock, redislock, redlock, nativelock, SQL locks, SQL Server": "no: hosts decide who asks first",
		"timer":    "timer.TestTriggersBesideABusyLimit",
		"leader":   "no: it has no limits",
		"durable":  "durable.TestOrderOfClaims",
		"outbox":   "no: topics have places of their own",
		"registry": "no: it has no limits",
		"people":   shows,
	}},
	{"a process of another environment takes nothing, and everybody sees that it is refused", map[string]string{
		"memlock, caslock, redislock, redlock, nativelock, SQL locks": "" +
			"no: a store grants what it is asked for; who asks is refused before",
		"timer":             "cluster.TestPartsOfAnotherEnvironment",
		"leader":            "cluster.TestPartsOfAnotherEnvironment",
		"durable":           "durable.TestWorkerOfAnotherEnvironment; durable.TestWorkerThatIsRefusedLater",
		"outbox":            "outbox.TestRelayOfAnotherEnvironment; outbox.TestRelayThatIsRefusedLater",
		"registry memory":   "cluster.TestEnvironmentsDoNotMix; cluster.TestMemoryStoreConformance/hosts",
		"registry redis":    "cluster/redisregistry.TestConformanceSingle/hosts",
		"registry postgres": "cluster/sqlregistry.TestConformance/Postgres/hosts",
		"registry mysql":    "cluster/sqlregistry.TestConformance/MySQL/hosts",
		"registry sqlite":   "cluster/sqlregistry.TestConformance/SQLite/hosts",
		"page":              "cluster/page.TestOverviewSaysWhatNeedsAttention",
		"command line":      "cmd/tickslot/internal/commands.TestRefusedProcessIsListed",
		"health":            "cluster.TestPartsOfAnotherEnvironment",
		"SQL Server":        sqlServer,
	}},
}
