package main

// columns are the lock stores, the products, the stores of the fleet registry, and the user
// interfaces.
var columns = []column{
	{"memlock", "dlock/memlock"},
	{"caslock", "dlock/caslock"},
	{"redislock", "dlock/redislock"},
	{"redlock", "dlock/redlock"},
	{"sqllock postgres", "dlock/sqllock/internal/postgres"},
	{"sqllock mysql", "dlock/sqllock/internal/mysql"},
	{"sqllock sqlite", "dlock/sqllock/internal/sqlite"},
	{"sqllock sqlserver", "dlock/sqllock/internal/sqlserver"},
	{"nativelock", "dlock/nativelock"},
	{"timer", "timer"},
	{"leader", "leader"},
	{"durable postgres", "durable/internal/postgres"},
	{"durable sqlite", "durable/internal/sqlite"},
	{"outbox postgres", "outbox/internal/sqlstore/sql/relay.postgres.sql"},
	{"outbox mysql", "outbox/internal/sqlstore/sql/relay.mysql.sql"},
	{"outbox sqlite", "outbox/internal/sqlstore/sql/relay.sqlite.sql"},
	{"outbox sqlserver", "outbox/internal/sqlstore/sql/relay.sqlserver.sql"},
	{"registry memory", "cluster"},
	{"registry redis", "cluster/redisregistry"},
	{"registry postgres", "cluster/sqlregistry/sql/registry.postgres.sql"},
	{"registry mysql", "cluster/sqlregistry/sql/registry.mysql.sql"},
	{"registry sqlite", "cluster/sqlregistry/sql/registry.sqlite.sql"},
	{"registry sqlserver", "cluster/sqlregistry/sql/registry.sqlserver.sql"},
	{"page", "cluster/page"},
	{"command line", "cmd"},
	{"health", "health"},
}

// groups of columns. SQL Server is separate, because none of its code was ever run on a server.
var groups = map[string][]string{
	"SQL locks": {"sqllock postgres", "sqllock mysql", "sqllock sqlite"},
	"durable":   {"durable postgres", "durable sqlite"},
	"outbox":    {"outbox postgres", "outbox mysql", "outbox sqlite"},
	"registry": {"registry memory", "registry redis", "registry postgres", "registry mysql",
		"registry sqlite"},
	"SQL registries": {"registry postgres", "registry mysql", "registry sqlite"},
	"SQL Server":     {"sqllock sqlserver", "outbox sqlserver", "registry sqlserver"},
	"people":         {"page", "command line", "health"},
}

// noColumns are folders that could contain a store or a product, with the reason why they have no
// column.
var noColumns = map[string]string{
	"dlock":                        "it is the contract of stores, and leases on top",
	"dlock/sqllock":                "it is the frame of its four databases",
	"dlock/sqllock/internal/store": "it is the contract of the four databases",
	"dlock/dlocktest":              "its stores are faulty on purpose",
	"cluster/sqlregistry":          "it is the frame of its four databases",
	"durable":                      "it has a column for each database",
	"durable/internal/memory":      "it is for tests",
	"durable/internal/kit":         "it is for tests: durabletest reaches the store in memory by it",
	"service":                      "it puts parts together, which make the calls",
	"durable/internal/store":       "it is the contract of the databases",
	"durable/internal/storetest":   "it tests the databases",
	"outbox":                       "it has a column for each database",
	"schedule":                     "it computes, and calls nobody",
	"internal":                     "the products that use it have columns",
	"oteltickslot":                 "it shows what the products do",
	"contrib":                      "each folder is a bridge to another library",
	"examples":                     "they show the products",
	"proof":                        "it shows what the others promise",
	"deploy":                       "these are files of configuration",
	"docs":                         "these are documents",
	"scripts":                      "they build and test",
}

const (
	sqlServer = "no: its statements are read and compared in tests, and were never run on a server"
	shows     = "no: it keeps nothing, and shows what the others have"
)
