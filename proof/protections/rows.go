package main

// rows are the protections: first those of lock stores and their timers, then those of products
// with their own database, and last those of user interfaces.
var rows = []row{
	{"a request whose answer was lost is asked again, and done once", map[string]string{
		"caslock":   "dlock/caslock.TestConformance/token/lost reply; dlock/caslock.TestFaults",
		"memlock":   "dlock/memlock.TestConformance/token/lost reply",
		"redislock": "dlock/redislock.TestConformanceSingle/token/lost reply",
		"redlock": "dlock/redlock.TestConformance/token/lost reply; " +
			"dlock/redlock.TestSameTokenSameSlot",
		"sqllock postgres": "dlock/sqllock.TestSameTokenFromManySidesPostgres; " +
			"dlock/sqllock.TestTokenUsedAgainPostgres",
		"sqllock mysql":  "dlock/sqllock.TestLostRepliesMySQL",
		"sqllock sqlite": "dlock/sqllock.TestHalfWaySQLite",
		"nativelock":     "dlock/nativelock.TestOneLockPerGrant",
		"timer":          "dlock.TestLostReplyOfAcquire; timer.TestControlTriggerWhoseAnswerIsLost",
		"leader":         "leader.TestI13LeadersUnderFaults",
		"durable postgres": "durable.TestEveryCallWithEveryFault; " +
			"durable/internal/postgres.TestConformance/directly/finishing",
		"durable sqlite":  "durable/internal/sqlite.TestSQLite/finishing",
		"outbox postgres": "outbox/internal/sqlstore.TestConformance/Postgres/mark",
		"outbox mysql":    "outbox/internal/sqlstore.TestConformance/MySQL/mark",
		"outbox sqlite":   "outbox/internal/sqlstore.TestConformance/SQLite/mark",
		"registry memory": "cluster.TestMemoryStoreConformance/histories",
		"registry redis":  "cluster/redisregistry.TestLostRepliesAreRepeated",
		"SQL registries":  "cluster/sqlregistry.TestReplyIsLost",
		"page, command line": "" +
			"no: a person repeats a change, whose statements set a value and add none",
		"health":     "no: a probe reads memory",
		"SQL Server": sqlServer,
	}},
	{"a start of a rate whose answer was lost counts, and counts once when it is asked again", map[string]string{
		"caslock":          "dlock/caslock.TestConformance/rate/counts every grant once",
		"memlock":          "dlock/memlock.TestConformance/rate/counts every grant once",
		"redislock":        "dlock/redislock.TestConformanceSingle/rate/counts every grant once",
		"sqllock postgres": "dlock/sqllock.TestConformancePostgres/pgx/rate/counts every grant once",
		"sqllock mysql":    "dlock/sqllock.TestConformanceMySQL/one round trip/rate/counts every grant once",
		"sqllock sqlite":   "dlock/sqllock.TestConformanceSQLite/file/rate/counts every grant once",
		"redlock, nativelock, sqllock sqlserver": "" +
			"no: it cannot keep a rate, and refuses one",
		"timer": "timer.TestRateOfALimit",
		"leader, durable, outbox, outbox sqlserver, registry, registry sqlserver, people": "" +
			"no: it has no rate",
	}},
	{"a server that hangs costs a call no more than its time-out", map[string]string{
		"caslock":          "dlock/caslock.TestFaults",
		"memlock":          "no: it calls no server",
		"redislock":        "dlock/redislock.TestI2I7ServerFrozen",
		"redlock":          "dlock/redlock.TestFrozenServer; dlock/redlock.TestFrozenMajority",
		"sqllock postgres": "dlock/sqllock.TestI2I7FrozenPostgres",
		"sqllock mysql":    "dlock/sqllock.TestI2I7FrozenMySQL",
		"sqllock sqlite":   "dlock/sqllock.TestI7StoppedWriterSQLite",
		"nativelock":       "dlock/nativelock.TestI1I2I7Frozen",
		"timer":            "timer.TestI7ThousandTimersGoOnWhileTheStoreHangs",
		"leader":           "leader.TestNobodyLeadsWithoutTheStore",
		"durable postgres": "durable/internal/postgres.TestLinkThatFails; " +
			"durable/internal/postgres.TestServerThatFails (long); durable.TestCallThatDoesNotReturn",
		"durable sqlite":  "durable/internal/sqlite.TestLockedFile; durable.TestCallThatDoesNotReturn",
		"outbox":          "outbox.TestDatabaseThatFails; outbox.TestCallThatDoesNotReturn",
		"registry memory": "cluster.TestStoreThatDoesNotReturn",
		"registry redis": "cluster/redisregistry.TestHungClusterNode; " +
			"cluster/redisregistry.TestConformanceSingle/calls",
		"registry postgres": "cluster/sqlregistry.TestConformance/Postgres/calls",
		"registry mysql":    "cluster/sqlregistry.TestConformance/MySQL/calls",
		"registry sqlite":   "cluster/sqlregistry.TestTableIsLocked",
		"page":              "cluster.TestSnapshotWhenAStoreIsDown",
		"command line":      "cmd/tickslot/internal/top.TestStoreIsDown",
		"health":            "health.TestACheckThatHangs",
		"SQL Server":        sqlServer,
	}},
	{"the same, when one server of several hangs: it costs what is on it", map[string]string{
		"redislock":      "dlock/redislock.TestHungNodeCostsOnlyItsOwnNames",
		"redlock":        "dlock/redlock.TestMinorityDown",
		"timer":          "timer.TestServerThatHangsCostsItsOwnTimers",
		"registry redis": "cluster/redisregistry.TestHungClusterNode",
		"caslock":        "no: it knows one backend, whatever that is made of",
		"memlock, sqllock sqlserver, nativelock, registry memory, registry sqlserver, SQL registries, SQL locks": "" +
			"no: it is one server, or none",
		"leader":                            "no: a role is one name, which is on one server",
		"outbox sqlserver, outbox, durable": "no: it is one database",
		"page, command line":                "cluster.TestSnapshotWhenAStoreIsDown",
		"health":                            "no: a probe reads memory",
	}},
	{"a process that was stopped for longer than its lease begins nothing with it when it wakes", map[string]string{
		"caslock": "dlock.TestI2_MachineSlept; dlock/caslock.TestLateWriteIsRefused",
		"memlock": "dlock.TestI2_MachineSlept",
		"redislock": "dlock/redislock.TestI2ProcessStopped; " +
			"dlock/redislock.TestOverridesWhileStopped",
		"redlock":          "dlock/redlock.TestUnderASession",
		"sqllock postgres": "dlock/sqllock.TestOverridesWhileStoppedPostgres",
		"sqllock mysql":    "dlock/sqllock.TestOverridesWhileStoppedMySQL",
		"sqllock sqlite": "dlock/sqllock.TestOverridesWhileStoppedSQLite; " +
			"dlock/sqllock.TestI7StoppedWriterSQLite",
		"nativelock": "dlock/nativelock.TestI1I2I7Frozen",
		"timer": "timer.TestI2LossThatIsNoOutageEndsTheRunUnderRunLocal; " +
			"timer.TestI2NoRetryWithoutAValidLease",
		"leader":           "proof/acceptance.TestLeaderStandsStill",
		"durable postgres": "durable.TestMachineThatWasAsleep",
		"durable sqlite":   "durable/internal/sqlite.TestStoppedWriter",
		"SQL Server":       sqlServer,
		"registry":         "no: it has no leases, and shows others as they were written",
		"people":           "no: they begin nothing",
		"outbox":           "proof/crash.TestRelayThatWasStoppedBeginsNothing",
	}},
	{"names are bytes: case, accents, spaces at the end and quotes make two names", map[string]string{
		"caslock":           "dlock/caslock.TestConformance/names",
		"memlock":           "dlock/memlock.TestConformance/names",
		"redislock":         "dlock/redislock.TestConformanceSingle/names",
		"redlock":           "dlock/redlock.TestConformance/names",
		"sqllock postgres":  "dlock/sqllock.TestConformancePostgres/pgx/names",
		"sqllock mysql":     "dlock/sqllock.TestConformanceMySQL/one round trip/names",
		"sqllock sqlite":    "dlock/sqllock.TestConformanceSQLite/file/names",
		"nativelock":        "dlock/nativelock.TestNames",
		"timer":             "no: it passes names on to its store, as they are",
		"leader":            "no: it passes names on to its store, as they are",
		"durable postgres":  "durable/internal/postgres.TestConformance/directly/texts",
		"durable sqlite":    "durable/internal/sqlite.TestSQLite/texts",
		"outbox postgres":   "outbox/internal/sqlstore.TestConformance/Postgres/append",
		"outbox mysql":      "outbox/internal/sqlstore.TestConformance/MySQL/append",
		"outbox sqlite":     "outbox/internal/sqlstore.TestConformance/SQLite/append",
		"registry memory":   "cluster.TestMemoryStoreConformance/texts",
		"registry redis":    "cluster/redisregistry.TestConformanceSingle/texts",
		"registry postgres": "cluster/sqlregistry.TestConformance/Postgres/texts",
		"registry mysql":    "cluster/sqlregistry.TestConformance/MySQL/texts",
		"registry sqlite":   "cluster/sqlregistry.TestConformance/SQLite/texts",
		"page":              "cluster/page.TestHostileNamesAreOnlyText",
		"command line":      "cmd/tickslot/internal/show.TestHostileTextIsInert",
		"health":            "health.TestHostileTexts",
		"SQL Server":        sqlServer,
	}},
	{"tables that a crash would empty, and files that two cannot share, are refused", map[string]string{
		"memlock, caslock, redislock, redlock, registry memory, registry redis": "no: it has no tables and files",
		"nativelock": "no: its locks are those of connections, and no rows",
		"sqllock postgres, durable postgres, outbox postgres, registry postgres": "" +
			"internal/sqlkit.TestTablesThatACrashWouldEmpty",
		"sqllock mysql, outbox mysql, registry mysql": "" +
			"internal/sqlkit.TestTablesOfAnEngineWithoutTransactions",
		"sqllock sqlite, durable sqlite, outbox sqlite, registry sqlite": "" +
			"internal/sqlkit.TestFilesThatCannotBeShared; internal/sqlkit.TestFileThatWasReplaced",
		"timer, leader": "no: its store has the tables",
		"people":        shows,
		"SQL Server":    sqlServer,
	}},
	{"a set-up that is wrong is an error that says what to do, and no outage", map[string]string{
		"caslock":                  "dlock/caslock.TestTableIsMissing; dlock/caslock.TestFaults",
		"memlock, registry memory": "no: there is nothing to set up",
		"redislock":                "dlock/redislock.TestI11NotSetUp",
		"redlock":                  "dlock/redlock.TestPasswordIsNotTold",
		"sqllock postgres": "dlock/sqllock.TestI11NotSetUpPostgres; " +
			"dlock/sqllock.TestBadSchemaPostgres",
		"sqllock mysql":    "dlock/sqllock.TestBadSchemaMySQL",
		"sqllock sqlite":   "dlock/sqllock.TestBadSchemaSQLite; dlock/sqllock.TestUnfitFilesSQLite",
		"nativelock":       "dlock/nativelock.TestUnfitServersAdvisory",
		"timer":            "timer.TestI11RunFailsAtOnceOnAStoreThatIsNotSetUp; timer.TestI11RightRevokedLater",
		"leader":           "leader.TestFaultsOfARole; leader.TestNobodyLeadsWithoutTheStore",
		"durable postgres": "durable/internal/postgres.TestSetUpThatIsWrong",
		"durable sqlite":   "durable/internal/sqlite.TestSetUpThatIsWrong",
		"outbox":           "outbox/internal/sqlstore.TestTablesThatAreNotRight; outbox.TestTableThatIsMissing",
		"registry redis": "cluster/redisregistry.TestForeignKeys; " +
			"cluster/redisregistry.TestFaultsOfTheOptions",
		"SQL registries": "cluster/sqlregistry.TestTableThatIsNotRight",
		"page":           "cluster/page.TestNewReturnsEveryFault",
		"command line": "cmd/tickslot/internal/commands.TestDoctorOnRedis; " +
			"cmd/tickslot/internal/commands.TestDoctorOnPostgres; " +
			"cmd/tickslot/internal/commands.TestDoctorOnMariaDB",
		"health":     "no: it shows the checks of others",
		"SQL Server": sqlServer,
	}},
	{"hosts that migrate at the same time do it once", map[string]string{
		"memlock, caslock, redislock, redlock, nativelock, registry memory, registry redis": "" +
			"no: it has no tables",
		"timer, leader":    "no: its store has the tables",
		"sqllock postgres": "dlock/sqllock.TestMigratePostgres",
		"sqllock mysql":    "dlock/sqllock.TestMigrateMySQL",
		"sqllock sqlite":   "dlock/sqllock.TestProcessesMigrateAtOnceSQLite",
		"durable postgres": "durable/internal/postgres.TestWhoMigrates",
		"durable sqlite":   "durable/internal/sqlite.TestSQLite/set up",
		"outbox":           "outbox/internal/sqlstore.TestMigrateAtOnce",
		"SQL registries":   "cluster/sqlregistry.TestMigrateAtOnce",
		"page, health":     shows,
		"command line":     "cmd/tickslot/internal/commands.TestTablesAreMigrated",
		"SQL Server":       sqlServer,
	}},
	{"what the documents say of rights is enough, and without any of them an error names it", map[string]string{
		"caslock":                  "dlock/caslock.TestFaults",
		"memlock, registry memory": "no: it asks for no rights",
		"redislock": "dlock/redislock.TestLeastPrivilegeAsDocumented; " +
			"dlock/redislock.TestRightsForADatabaseAndAName",
		"redlock":          "dlock/redlock.TestRefusedToEverybody",
		"sqllock postgres": "dlock/sqllock.TestLeastPrivilegePostgres",
		"sqllock mysql":    "dlock/sqllock.TestLeastPrivilegeMySQL",
		"sqllock sqlite, durable sqlite, outbox sqlite, registry sqlite": "no: SQLite has no users",
		"nativelock": "no: its locks need no right",
		"timer":      "proof/acceptance.TestPartsStartWithTheDocumentedRights",
		"leader":     "no: its store has the rights",
		"durable postgres": "durable/internal/postgres.TestLeastPrivilege; " +
			"proof/acceptance.TestPartsStartWithTheDocumentedRights",
		"outbox postgres, outbox mysql": "outbox/internal/sqlstore.TestRights; " +
			"proof/acceptance.TestPartsStartWithTheDocumentedRights",
		"registry redis":                    "cluster/redisregistry.TestLeastPrivilegeAsDocumented",
		"registry postgres, registry mysql": "cluster/sqlregistry.TestRights",
		"page":                              "cluster/page.TestAuthorize",
		"command line": "cmd/tickslot/internal/commands.TestRights; " +
			"cmd/tickslot/internal/commands.TestRightsOnRedis; " +
			"cmd/tickslot/internal/commands.TestDoctorOnPostgres; " +
			"cmd/tickslot/internal/commands.TestDoctorOnMariaDB",
		"health":     "no: a probe asks for no rights",
		"SQL Server": sqlServer,
	}},
	{"code of the user that panics, hangs or ignores its context harms nothing else", map[string]string{
		"caslock":             "dlock/caslock.TestBackendThatPanics",
		"memlock, nativelock": "no: it calls no code of the user",
		"redislock":           "dlock/redislock.TestHookThatPanics",
		"redlock":             "dlock.TestCalledThatExits",
		"sqllock postgres":    "dlock/sqllock.TestStrangersFunctionsAreNotCalledPostgres",
		"sqllock mysql, sqllock sqlite, sqllock sqlserver": "" +
			"no: it calls the driver, and no code of the user",
		"timer": "timer.TestI10BadHandlersHarmNobody; " +
			"timer.TestI10HooksHarmNobody; " +
			"timer.TestI10PanickingLoggerHarmsNobody",
		"leader": "leader.TestFunctionThatPanicsInTheEnd; " +
			"leader.TestFunctionThatIgnoresALoss; " +
			"leader.TestI10LoggerHarmsNobody",
		"durable postgres": "durable.TestHooksHarmNobody; " +
			"durable.TestStuckHandlerIsNamed; " +
			"durable/internal/postgres.TestApplicationPanicsInACall",
		"durable sqlite": "durable.TestHooksHarmNobody; durable.TestStuckHandlerIsNamed",
		"outbox sqlserver, outbox": "outbox.TestSinksThatAnswerNonsense; " +
			"outbox.TestSinkThatDoesNotReturn",
		"registry sqlserver, registry": "cluster.TestClassifierThatFailsIsLoggedOnce; " +
			"cluster.TestRunnersAreAskedByManyAtOnce",
		"page":         "cluster/page.TestAuthorize",
		"command line": "no: it calls no code of the user",
		"health":       "health.TestAPanicIsAFailure; health.TestACheckThatHangs",
	}},
	{"a limit is never exceeded, however many ask at once", map[string]string{
		"caslock":          "dlock/caslock.TestConformance/hammer; dlock/caslock.TestOneTickOfManyHosts",
		"memlock":          "dlock/memlock.TestConformance/hammer",
		"redislock":        "dlock/redislock.TestConformanceSingle/hammer",
		"redlock":          "dlock/redlock.TestConformance/hammer",
		"sqllock postgres": "dlock/sqllock.TestContentionPostgres",
		"sqllock mysql":    "dlock/sqllock.TestContentionMySQL",
		"sqllock sqlite":   "dlock/sqllock.TestContentionSQLite",
		"nativelock":       "dlock/nativelock.TestContention",
		"timer": "timer.TestI1ValidRunsNeverExceedMaxConcurrency; " +
			"timer.TestI1SharedLimitIsNeverExceeded",
		"leader":           "leader.TestI13LeadersUnderFaults",
		"durable postgres": "durable/internal/postgres.TestConformance/directly/limits",
		"durable sqlite":   "durable/internal/sqlite.TestSQLite/limits",
		"outbox sqlserver, outbox": "" +
			"no: it has no limit in the fleet but one relay for each shard, which is a role of leader",
		"registry sqlserver, registry, people": "no: it limits nothing",
		"sqllock sqlserver":                    sqlServer,
	}},
	{"clocks of hosts that are wrong by any amount change no answer", map[string]string{
		"caslock":             "dlock/caslock.TestClockOfSeconds; dlock/caslock.TestConformanceWithACoarseClock",
		"memlock, nativelock": "no: all measure with one clock",
		"redislock":           "timer.TestClocksThatDiffer",
		"redlock":             "no: each server measures the TTL that it was sent",
		"SQL locks":           "timer.TestClocksThatDiffer",
		"timer":               "timer.TestClocksThatDiffer",
		"leader":              "no: a term is measured by the store, and by the monotonic clock of its host",
		"durable":             "durable.TestClocksOfHostsAreAnHourOff",
		"outbox":              "outbox.TestClockOfTheHostIsAnHourOff (long)",
		"registry memory":     "cluster.TestClockOffset",
		"registry redis":      "cluster/redisregistry.TestTimesAreTheServers",
		"SQL registries":      "cluster/sqlregistry.TestTheDatabaseMeasuresTime",
		"page, command line":  "no: they show ages that the store has measured",
		"health":              "no: it compares ages that others have measured",
		"SQL Server":          sqlServer,
	}},
	{"a server that is killed, or comes back without its data, breaks no limit", map[string]string{
		"caslock": "no: it does not notice that a server was restored from a copy; its doc says so",
		"memlock": "no: it lives and dies with its process",
		"redislock": "dlock/redislock.TestI1I4ServerRestartedEmpty; " +
			"dlock/redislock.TestI1I4ServerRestartedFromAnOldSnapshot",
		"redlock": "dlock/redlock.TestServerComesBackEmpty",
		"sqllock postgres": "dlock/sqllock.TestI1I4KilledPostgres; " +
			"dlock/sqllock.TestI1GrantsSurviveACrashPostgres",
		"sqllock mysql": "dlock/sqllock.TestI1I4KilledMySQL; " +
			"dlock/sqllock.TestI1GrantsSurviveACrashMySQL",
		"sqllock sqlite": "dlock/sqllock.TestI1I4ProcessesSQLite; " +
			"dlock/sqllock.TestFileReplacedSQLite",
		"nativelock":       "dlock/nativelock.TestServerKilled",
		"timer":            "timer.TestQuarantinedTickIsTriedAgain; timer.TestI1RejoinWithoutOverrun",
		"leader":           "proof/acceptance.TestStoreIsKilled",
		"durable postgres": "durable/internal/postgres.TestConnectionsAreCutAtEveryStatement",
		"durable sqlite":   "durable/internal/sqlite.TestProcessesAreKilledAtEveryStatement",
		"outbox":           "proof/crash.TestKilledAtEveryStatement",
		"registry memory":  "no: it lives and dies with its process",
		"registry redis":   "cluster/redisregistry.TestEmptiedServer",
		"SQL registries":   "cluster.TestLeasesAreBackAfterTheRegistryWasEmptied",
		"people":           "no: they limit nothing",
		"SQL Server":       sqlServer,
	}},
	{"a record of somebody else, or one that cannot be read, costs itself", map[string]string{
		"caslock":                  "dlock/caslock.TestDocumentsThatCannotBeRead",
		"memlock, registry memory": "no: nobody else writes to it",
		"redislock": "dlock/redislock.TestNonsenseInTheKeysIsSurvived; " +
			"dlock/redislock.TestForeignValuesAreErrorsThatNameTheKey",
		"redlock": "dlock/redlock.TestForeignToken",
		"sqllock postgres": "dlock/sqllock.TestOverrideByHandPostgres; " +
			"dlock/sqllock.TestStrangeHoldersPostgres",
		"sqllock mysql, sqllock sqlite": "dlock/sqllock.TestOverridesByHand",
		"nativelock":                    "no: a lock is there or not, and has no content",
		"timer": "timer.TestOneBadKeyIsNotAnOutage; " +
			"timer.TestI11FaultIsNoReasonToRunEverywhere",
		"leader":         "no: a role is one name",
		"registry redis": "cluster/redisregistry.TestForeignRows",
		"SQL registries": "cluster.TestHostsThatCannotBeReadAreKept",
		"page":           "cluster/page.TestHostileNamesAreOnlyText",
		"command line":   "cmd/tickslot/internal/show.TestHostileTextIsInert",
		"health":         "health.TestHostileTexts",
		"SQL Server":     sqlServer,
		"durable": "" +
			"no: its columns have checks, a payload is bytes, and a name is looked up as it is",
		"outbox": "outbox.TestRowThatCannotBeRead",
	}},
	{"two versions of tickslot work side by side", map[string]string{
		"caslock":         "dlock/caslock.TestDocumentsThatCannotBeRead",
		"memlock":         "no: one process has one version",
		"redislock":       "dlock/redislock.TestTwoVersionsOfUs",
		"redlock":         "no: redsync writes what it writes, whatever our version is",
		"SQL locks":       "dlock/sqllock.TestTwoVersionsOfUs",
		"nativelock":      "no: the database makes the locks, and keeps nothing of ours",
		"timer":           "timer.TestTwoSchedulesSideBySide; timer.TestHostsDisagreeAboutALimit",
		"leader":          "no: its store has the rows",
		"durable":         "durable.TestTwoVersionsOfASchedule; durable.TestVersionThatIsRolledBack",
		"outbox":          "outbox/internal/sqlstore.TestTablesThatAreNotRight",
		"registry memory": "no: one process has one version",
		"registry redis":  "cluster/redisregistry.TestForeignRows",
		"SQL registries":  "cluster/sqlregistry.TestNewerTableIsUsed",
		"people":          "no: they show what the versions that write agree on",
		"SQL Server":      sqlServer,
	}},
	{"an override of an operator counts from when its call returns", map[string]string{
		"caslock":             "dlock/caslock.TestConformance/control",
		"memlock":             "dlock/memlock.TestConformance/control",
		"redislock":           "dlock/redislock.TestConformanceSingle/control",
		"redlock, nativelock": "no: it keeps no overrides, and says so",
		"sqllock postgres": "dlock/sqllock.TestLimitWaitsForGrantsPostgres; " +
			"dlock/sqllock.TestLimitsWhileGrantingPostgres",
		"sqllock mysql":                "dlock/sqllock.TestLimitsWhileGrantingMySQL",
		"sqllock sqlite":               "dlock/sqllock.TestLimitsWhileGrantingSQLite",
		"timer":                        "timer.TestPauseReachesTheFleet; timer.TestLimitReachesTheFleet",
		"leader":                       "leader.TestPausedAndRevoked",
		"durable sqlite":               "durable/internal/sqlite.TestSQLite/limits",
		"outbox sqlserver, outbox":     "no: it has no overrides",
		"registry sqlserver, registry": "no: it is a view",
		"page":                         "cluster/page.TestTimerIsShownAndChanged",
		"command line":                 "cmd/tickslot/internal/commands.TestTimersAreSteered",
		"health":                       "no: it changes nothing",
		"sqllock sqlserver":            sqlServer,
		"durable postgres":             "durable/internal/postgres.TestConformance/directly/limits",
	}},
	{"a host that shuts down leaves no work taken and not done", map[string]string{
		"caslock":                             "dlock/caslock.TestConformance/release",
		"memlock":                             "dlock/memlock.TestConformance/release",
		"redislock":                           "dlock/redislock.TestConformanceSingle/release",
		"redlock":                             "dlock/redlock.TestConformance/release",
		"sqllock postgres":                    "dlock/sqllock.TestReleaseOfAnAttemptUnderWayPostgres",
		"sqllock mysql, sqllock sqlite":       "dlock.TestCloseDuringAnAcquire",
		"nativelock":                          "dlock/nativelock.TestClose",
		"leader":                              "leader.TestRoleIsReleasedWhenTheFunctionHasReturned",
		"durable":                             "durable.TestClaimUnderWayIsGivenBack; durable.TestDrainGivesBack",
		"outbox":                              "outbox.TestDrain",
		"registry sqlserver, registry":        "no: it takes no work",
		"people":                              "no: they take no work",
		"sqllock sqlserver, outbox sqlserver": sqlServer,
		"timer": "timer.TestGracefulRestartsLoseNoTick; " +
			"timer.TestRunThatStartsWhileDraining",
	}},
	{"a crowd that is due at once is served, in calls of bounded size", map[string]string{
		"caslock": "dlock/caslock.TestOneTickOfManyHosts",
		"memlock": "no: it makes no calls",
		"redislock": "dlock/redislock.TestAPageIsBounded; " +
			"dlock/redislock.TestConformanceSingle/batch",
		"redlock":          "dlock/redlock.TestBurst",
		"sqllock postgres": "dlock/sqllock.TestConformancePostgres/pgx/batch",
		"sqllock mysql":    "dlock/sqllock.TestListOfTenThousandMySQL",
		"sqllock sqlite":   "dlock/sqllock.TestConformanceSQLite/file/batch",
		"nativelock":       "dlock/nativelock.TestContention",
		"timer":            "timer.TestAPeakStarvesNobody; timer.TestAttemptsInFlightAreBounded",
		"leader":           "no: a role is one name",
		"registry memory":  "cluster.TestCallsOfAHostWithManyLeases",
		"registry redis":   "cluster/redisregistry.TestBatchesAreBounded",
		"SQL registries":   "cluster/sqlregistry.TestHostsWriteAndSweepAtOnce",
		"page": "cluster/page.TestALargeFleetIsShownSoon; " +
			"cluster/page.TestManyFollowersCostWhatOneDoes",
		"command line": "no: it asks once, or once a second",
		"health":       "health.TestI12ProbesCostTheStoreNothing",
		"SQL Server":   sqlServer,
		"durable postgres": "durable/internal/postgres.TestManySchedulesAreDueAtOnce; " +
			"durable.TestDeployWithManySchedules",
		"durable sqlite": "durable.TestManySchedules",
		"outbox": "outbox.TestTenThousandKeysOfWhichOneIsHot; " +
			"outbox.TestABatchThatIsTooLargeForItsTime",
	}},
	{"a row that a stranger keeps locked costs itself", map[string]string{
		"memlock, caslock, redislock, redlock, nativelock": "no: nobody else can keep its records locked",
		"sqllock postgres": "dlock/sqllock.TestForeignLockCostsOneSlotPostgres; " +
			"dlock/sqllock.TestForeignLockCostsOneLeasePostgres",
		"sqllock mysql": "dlock/sqllock.TestForeignRowLockCostsOneSlotMySQL; " +
			"dlock/sqllock.TestForeignRowLockCostsOneLeaseMySQL",
		"sqllock sqlite, durable sqlite, outbox sqlite, registry sqlite": "" +
			"no: SQLite locks the file, which is a fault of its own",
		"timer, leader": "no: its store has the rows",
		"durable postgres": "durable/internal/postgres.TestRowThatIsLocked; " +
			"durable/internal/postgres.TestLimitThatIsLocked; " +
			"durable/internal/postgres.TestManyRunsThatAreLocked",
		"outbox postgres, outbox mysql": "outbox.TestOneRowIsLocked; outbox.TestManyRowsAreLocked; " +
			"outbox/internal/sqlstore.TestWhatALockedRowCosts",
		"registry memory, registry redis":   "no: nobody else can keep its records locked",
		"registry postgres, registry mysql": "cluster/sqlregistry.TestTableIsLocked",
		"people":                            "no: they keep nothing",
		"SQL Server":                        sqlServer,
	}},
	{"what is written after a restore, or behind a lagging copy, names one grant or message", map[string]string{
		"caslock": "dlock/caslock.TestConformance/token",
		"memlock": "dlock/memlock.TestConformance/token",
		"redislock": "dlock/redislock.TestI4FencesGrowAcrossLossOfTheState; " +
			"dlock/redislock.TestI1I4ServerRestartedFromAnOldSnapshot",
		"redlock":          "dlock/redlock.TestForeignToken",
		"sqllock postgres": "dlock/sqllock.TestDeletedRowsPostgres",
		"sqllock mysql":    "dlock/sqllock.TestDeletedRowsMySQL",
		"sqllock sqlite":   "dlock/sqllock.TestDeletedRowsSQLite",
		"nativelock":       "no: a lock ends with its connection, and no copy has it",
		"timer":            "timer.TestI4FencesGrowFromRunToRun",
		"leader":           "no: its lease is one of the stores'",
		"durable postgres": "durable.TestDatabaseThatIsPutBack; " +
			"durable/internal/postgres.TestConformance/directly/finishing",
		"durable sqlite": "durable/internal/sqlite.TestSQLite/finishing",
		"outbox postgres": "outbox.TestDatabaseIsPutBackToACopy; " +
			"outbox/internal/sqlstore.TestConformance/Postgres/mark",
		"outbox mysql":      "outbox/internal/sqlstore.TestConformance/MySQL/mark",
		"outbox sqlite":     "outbox/internal/sqlstore.TestConformance/SQLite/mark",
		"registry memory":   "cluster.TestMemoryStoreConformance/leases",
		"registry redis":    "cluster/redisregistry.TestConformanceSingle/leases",
		"registry postgres": "cluster/sqlregistry.TestConformance/Postgres/leases",
		"registry mysql":    "cluster/sqlregistry.TestConformance/MySQL/leases",
		"registry sqlite":   "cluster/sqlregistry.TestConformance/SQLite/leases",
		"people":            "no: they write nothing of a holder",
		"SQL Server":        sqlServer,
	}},
	{"work that kills its process each time is counted, and harms others no longer than that", map[string]string{
		"memlock, caslock, redislock, redlock, nativelock, SQL locks, SQL Server": "no: it does no work",
		"timer": "" +
			"no: a tick whose host dies is gone, and nobody runs it again",
		"leader":   "no: each host that leads runs the function, and its process is restarted by others",
		"durable":  "durable.TestRunThatKillsItsWorkersIsADeadLetter",
		"outbox":   "outbox.TestMessageThatKillsItsRelay; proof/crash.TestMessageThatKillsItsProcess",
		"registry": "no: it does no work",
		"people":   "no: they do no work",
	}},
	{"row level security that hides rows is an error that names the table", map[string]string{
		"memlock, caslock, redislock, redlock, nativelock, registry memory, registry redis": "" +
			"no: it has no tables",
		"timer, leader":                        "no: its store has the tables",
		"sqllock postgres":                     "internal/sqlkit.TestRowLevelSecurityIsFound",
		"durable postgres":                     "internal/sqlkit.TestRowLevelSecurityIsFound",
		"outbox postgres":                      "internal/sqlkit.TestRowLevelSecurityIsFound",
		"registry postgres":                    "internal/sqlkit.TestRowLevelSecurityIsFound",
		"SQL locks, durable, outbox, registry": "no: this database has no row level security",
		"SQL Server":                           sqlServer,
		"page, health":                         shows,
		"command line":                         "no: it asks Verify",
	}},
	{"a password in an error or a header leaves the process nowhere", map[string]string{
		"caslock":                  "no: it is given none; an adapter gets the user's client",
		"memlock, registry memory": "no: it has none",
		"redislock":                "dlock/redislock.TestPasswordIsNotTold",
		"redlock":                  "dlock/redlock.TestRefusedToEverybody",
		"sqllock postgres":         "dlock/sqllock.TestPasswordIsNotTold; dlock/sqllock.TestLeastPrivilegePostgres",
		"sqllock mysql":            "dlock/sqllock.TestAdviceMySQL",
		"sqllock sqlite, registry sqlite": "" +
			"no: a file has no password",
		"nativelock": "no: its errors are those of the driver, which its users mask",
		"timer": "internal/mask.TestSecretsInErrorsLeaveNowhere/a timer that fails; " +
			"internal/mask.TestSecretsInErrorsLeaveNowhere/a timer whose store fails",
		"leader": "internal/mask.TestSecretsInErrorsLeaveNowhere/a role whose store fails",
		"durable": "internal/mask.TestSecretsInErrorsLeaveNowhere/a durable run that fails; " +
			"internal/mask.TestSecretsInErrorsLeaveNowhere/a durable store that is down",
		"outbox": "internal/mask.TestSecretsInErrorsLeaveNowhere/a message that is not taken; " +
			"internal/mask.TestSecretsInErrorsLeaveNowhere/an outbox whose store is down; " +
			"outbox/httpsink.TestErrorsKeepTheSecretOfAURL",
		"registry redis": "cluster/redisregistry.TestPasswordIsNotTold; " +
			"internal/mask.TestSecretsInErrorsLeaveNowhere/a registry whose store fails",
		"registry postgres, registry mysql": "cluster/sqlregistry.TestRights; " +
			"internal/mask.TestSecretsInErrorsLeaveNowhere/a part and an event",
		"page":         "internal/mask.TestSecretsInErrorsLeaveNowhere/a page that cannot read",
		"command line": "cmd/tickslot/internal/commands.TestSecretsAreNotTold",
		"health":       "internal/mask.TestSecretsInErrorsLeaveNowhere/a probe",
		"SQL Server":   sqlServer,
	}},
	{"a receiver or handler that hangs keeps its own places only", map[string]string{
		"memlock, caslock, redislock, redlock, nativelock, SQL locks, SQL Server": "no: it calls no receiver",
		"timer": "timer.TestI10OverrunIsLoudAndHarmless; " +
			"timer.TestI8StuckHandlerIsNamedAndItsSlotExpires",
		"leader": "leader.TestFunctionThatIgnoresALoss",
		"durable": "durable.TestHandlerThatIgnoresItsContextStopsNoClaims; " +
			"durable.TestHandlerThatIgnoresItsContextLosesItsLease",
		"outbox":       "outbox.TestHangingTopicCostsOnlyItself",
		"registry":     "cluster.TestStoreThatDoesNotReturn",
		"page":         "cluster/page.TestManyFollowersCostWhatOneDoes",
		"command line": "no: one command is one process",
		"health":       "health.TestACheckThatHangs",
	}},
	{"what was noted while the clock was ahead counts for nothing once the clock is right", map[string]string{
		"caslock": "dlock/caslock.TestConformance/clock",
		"memlock": "dlock/memlock.TestConformance/clock",
		"redislock": "dlock/redislock.TestConformanceMiniredis/clock; " +
			"dlock/redislock.TestServerClockWasAhead",
		"redlock":          "no: it keeps leases only, whose lengths each server measures",
		"sqllock postgres": "dlock/sqllock.TestConformancePostgres/pgx/clock",
		"sqllock mysql":    "dlock/sqllock.TestConformanceMySQL/one round trip/clock",
		"sqllock sqlite":   "dlock/sqllock.TestConformanceSQLite/file/clock",
		"nativelock":       "no: it keeps no instants",
		"timer": "timer.TestClocksThatStepTogether; " +
			"timer.TestClocksThatStepTogetherOnRedis",
		"leader": "no: it claims no ticks, and its store keeps leases and pauses",
		"durable postgres": "durable.TestDatabaseClockWasAhead; " +
			"durable/internal/postgres.TestConformance/directly/registering",
		"durable sqlite": "durable/internal/sqlite.TestSQLite/registering",
		"outbox": "" +
			"no: a message that was appended meanwhile waits until then, as proof/faults.md says",
		"registry":   "no: it is a view, and shows what was written",
		"people":     "no: they show what stores and products know",
		"SQL Server": sqlServer,
	}},
	{"work that fails is tried by time, not by count, and how it failed is kept in bounds", map[string]string{
		"memlock, caslock, redislock, redlock, nativelock, SQL locks, SQL Server": "no: it does no work",
		"timer":   "no: the next tick makes up for one that failed",
		"leader":  "no: a role is never done, and the next term is another try",
		"durable": "durable.TestRunIsTriedForThreeWeeks; durable.TestRetryIsBoundedByTimeAndByCount",
		"outbox": "outbox.TestMessageIsTriedForAsLongAsReceiversRemember; " +
			"outbox/internal/sqlstore.TestConformance/SQLite/failing",
		"registry": "no: it does no work",
		"people":   "no: they do no work",
	}},
}
