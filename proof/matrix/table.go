package main

// A server is a row of the matrix.
type server struct {
	Product string // its name in the documents
	kind    string // see servertest.Chosen
	fetch   string // argument of scripts/fetch.sh, or "" for the installed server
	suites  []suite
}

// A suite is a set of tests that must pass on a server.
type suite struct {
	Part string // locks, registry, durable or outbox
	dir  string
	run  string // argument of -test.run
	long bool   // too long for make test
}

var servers = []server{
	{"MySQL", "MYSQL", "mysql", mysql},
	{"MariaDB", "MYSQL", "", mysql},
	{"MariaDB", "MYSQL", "mariadb-11.8", mysql},
	{"Postgres", "POSTGRES", "postgres-13", postgres},
	{"Postgres", "POSTGRES", "", postgres},
	{"Postgres", "POSTGRES", "postgres-18", postgres},
	{"PgBouncer", "PGBOUNCER", "pgbouncer-1.15", pgbouncer},
	{"PgBouncer", "PGBOUNCER", "pgbouncer-1.26", pgbouncer},
	{"Redis", "REDIS", "", redis},
	{"Redis", "REDIS", "redis-8", redis},
	{"Valkey", "REDIS", "valkey-9", redis},
}

var mysql = []suite{
	{"locks", "dlock/sqllock", "^(TestConformanceMySQL|TestMigrateMySQL|TestSchemaIsWhatMigrateDoesMySQL|" +
		"TestLeastPrivilegeMySQL|TestForeignRowLockCostsOneSlotMySQL|TestForeignRowLockCostsOneLeaseMySQL|" +
		"TestTableNamesMySQL)$", false},
	{"locks", "dlock/nativelock", "^TestConformance$/^MySQL", false},
	{"registry", "cluster/sqlregistry", "^(TestConformance|TestMigrateAtOnce|TestRights)$/^MySQL(, MariaDB)?$", false},
	{"outbox", "outbox/internal/sqlstore", "^(TestConformance|TestMigrateAtOnce|TestRights|TestPlansOfMySQL)$/" +
		"^(MySQL|MySQL,_MariaDB|MariaDB_[0-9]+)$", false},
}

var postgres = []suite{
	{"locks", "dlock/sqllock", "^(TestConformancePostgres|TestMigratePostgres|TestSchemaIsWhatMigrateDoes|" +
		"TestLeastPrivilegePostgres)$", false},
	{"locks", "dlock/nativelock", "^TestConformance$/^Postgres", false},
	{"registry", "cluster/sqlregistry", "^(TestConformance|TestMigrateAtOnce|TestRights)$/^(Postgres|pgx)$", false},
	{"durable", "durable/internal/postgres", "^(TestConformance|TestLeastPrivilege|TestWhoMigrates|" +
		"TestPlansUseTheIndexes)$", false},
	{"outbox", "outbox/internal/sqlstore", "^(TestConformance|TestMigrateAtOnce|TestRights|TestPlansOfPostgres)$/" +
		"^Postgres$", false},
}

var pgbouncer = []suite{
	{"locks", "dlock/sqllock", "^TestConformancePostgres$/^PgBouncer$", true},
	{"registry", "cluster/sqlregistry", "^TestConformance$/^(Postgres|pgx),_PgBouncer$", true},
	{"durable", "durable/internal/postgres", "^TestConformance$/PgBouncer", true},
	{"outbox", "outbox/internal/sqlstore", "^TestConformance$/^Postgres,_PgBouncer$", true},
}

// redis runs as a single server, as a Cluster of three, and with Sentinel.
var redis = []suite{
	{"locks", "dlock/redislock", "^(TestConformanceSingle|TestConformanceCluster|TestLeastPrivilegeAsDocumented)$",
		false},
	{"locks", "dlock/redislock", "^(TestConformanceSingleTagged|TestConformanceSentinel)$", true},
	{"locks", "dlock/redlock", "^TestConformance$", false},
	{"registry", "cluster/redisregistry", "^(TestConformanceSingle|TestConformanceCluster|" +
		"TestLeastPrivilegeAsDocumented)$", false},
}
