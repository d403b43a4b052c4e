package tickslot_test

import (
	"go/build"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/tickslot/tickslot"

// A rule lists what the packages in a folder (and below it, up to a more precise rule) may import
// besides the standard library.
type rule struct {
	folder string
	may    []string // folders of this module, or import path prefixes of other modules
	why    string
}

// rules define the direction of imports. The most precise folder applies. Tests may import
// anything.
var rules = []rule{
	{".", []string{"internal/guard"}, "it runs any part with a Run method, so it must not import one: every user " +
		"would link it"},
	{"schedule", []string{"github.com/netresearch/go-cron"},
		"schedules are independent of what runs and where: timers use them, and so can other packages that must " +
			"agree on instants"},
	{"dlock", []string{"dlock/driver", "internal/notify", "internal/suspend"},
		"it is above every store, so it must not know one"},
	{"dlock/driver", nil,
		"it is only the contract of a store: authors of stores must not inherit our dependencies"},
	{"dlock/lockmetrics", []string{"dlock", "dlock/driver", "github.com/prometheus/client_golang/"},
		"the only package below dlock that links Prometheus, because only users of metrics need it"},
	{"dlock/memlock", []string{"dlock/driver", "internal/leasestate"}, "a store knows only the contract"},
	{"dlock/caslock", []string{"dlock/driver", "internal/guard", "internal/leasestate", "internal/suspend"},
		"it works on any document store and links no client: each adapter is a separate module"},
	{"dlock/caslock/caslocktest", []string{"dlock/caslock", "dlock/driver"},
		"the writer of an adapter reads it, and must not link one"},
	{"dlock/caslock/azurelock", []string{"dlock/caslock", "dlock/driver", "internal/guard",
		"github.com/Azure/azure-sdk-for-go/"},
		"it is a module of its own, which keeps the SDK from users without it"},
	{"dlock/caslock/dynamolock", []string{"dlock/caslock", "dlock/driver", "github.com/aws/"},
		"it is a module of its own, which keeps the SDK from users without it"},
	{"dlock/caslock/etcdlock", []string{"dlock/caslock", "dlock/driver", "go.etcd.io/etcd/"},
		"a separate module, so that other users do not download etcd"},
	{"dlock/redislock", []string{"dlock/driver", "internal/rediskit", "internal/startlog",
		"github.com/redis/go-redis/"},
		"a store knows the contract and its driver; only redlock needs redsync"},
	{"dlock/redlock", []string{"dlock/driver", "internal/rediskit", "github.com/redis/go-redis/",
		"github.com/go-redsync/redsync/"},
		"the only package that links redsync; a separate store with weaker promises than redislock"},
	{"dlock/sqllock", []string{"dlock/driver", "dlock/sqllock/internal/store", "dlock/sqllock/internal/mysql",
		"dlock/sqllock/internal/postgres", "dlock/sqllock/internal/sqlite",
		"dlock/sqllock/internal/sqlserver", "internal/guard", "internal/sqlkit", "internal/sqlmigrate",
		"internal/startlog"},
		"a user of one database must not link the drivers of the others"},
	{"dlock/sqllock/internal", []string{"dlock/driver", "dlock/sqllock/internal/store", "internal/clocks",
		"internal/guard", "internal/startlog",
		"internal/sqlkit", "internal/sqlmigrate"},
		"a database is one folder that can be added or removed: none knows another"},
	{"dlock/sqllock/pgxlock", []string{"dlock/nativelock", "dlock/sqllock", "internal/pgxkit",
		"github.com/jackc/pgx/"},
		"the only package that links pgx"},
	{"dlock/nativelock", []string{"dlock/driver", "internal/sqlkit"},
		"its promises are weaker than sqllock's, so the two share nothing; and it links no driver"},
	{"dlock/dlocktest", []string{"dlock/driver", "internal/testkit"},
		"authors of stores must be able to run the suite without our stores and drivers"},
	{"leader", []string{"dlock", "dlock/driver", "internal/guard", "internal/loop", "internal/mask",
		"internal/notify",
		"internal/lifecycle", "github.com/prometheus/client_golang/"},
		"it needs only leases, so that users of a leader need no timers"},
	{"timer", []string{"dlock", "dlock/driver", "schedule", "internal/answers", "internal/guard", "internal/startlog",
		"internal/mask", "internal/notify",
		"internal/lifecycle",
		"timer/control", "timer/internal/fleet", "github.com/prometheus/client_golang/",
		"github.com/cenkalti/backoff/"},
		"timers work on any store, so they must not know one; nor health, which uses any type with its four methods"},
	{"timer/control", []string{"dlock", "dlock/driver", "internal/guard", "internal/mask", "timer/internal/fleet"},
		"it changes a fleet through its store, so its users need no scheduler"},
	{"timer/manager", []string{"internal/guard", "internal/mask", "internal/lifecycle", "schedule", "timer"},
		"it uses only the public API of a Scheduler"},
	{"timer/internal/fleet", []string{"dlock", "dlock/driver", "internal/guard"},
		"hosts and their controllers share it, so it must know neither"},
	{"cluster", []string{"dlock", "dlock/driver", "internal/answers", "internal/guard", "internal/mask",
		"internal/notify",
		"internal/retention",
		"internal/lifecycle", "github.com/prometheus/client_golang/", "golang.org/x/sync/singleflight"},
		"it records the leases of any store, so it must not know one; its own stores bring their drivers. timer and " +
			"leader implement a method of its Runner instead"},
	{"cluster/clustertimer", []string{"cluster", "timer", "internal/guard"},
		"the only package that knows both, so that neither needs the other"},
	{"cluster/page", []string{"cluster", "cluster/page/internal/pagekit", "cluster/page/internal/readcache",
		"dlock", "dlock/driver", "internal/inert", "internal/mask", "timer", "timer/control"},
		"it shows the data of these packages; users without durable runs or an outbox must not link those, so their " +
			"pages are separate packages"},
	{"cluster/page/durablepage", []string{"cluster/page", "cluster/page/internal/pagekit",
		"cluster/page/internal/readcache", "dlock/driver", "durable"},
		"separate from the page, so that users without durable runs do not link them"},
	{"cluster/page/outboxpage", []string{"cluster/page", "cluster/page/internal/pagekit",
		"cluster/page/internal/readcache", "dlock/driver", "internal/mask", "outbox"},
		"separate from the page, so that users without an outbox do not link it"},
	{"cluster/page/browsertest", nil, "it contains only tests"},
	{"cluster/page/internal/pagekit", []string{"internal/mask"}, "it formats any data"},
	{"cluster/page/internal/readcache", []string{"internal/guard", "internal/mask"},
		"it caches any kind of read"},
	{"cluster/page/internal/pagetest", []string{"cluster", "cluster/page",
		"cluster/page/internal/readcache", "dlock", "internal/testkit"},
		"it tests a page with any section"},
	{"cluster/clustertest", []string{"cluster", "dlock"},
		"authors of registry stores must be able to run the suite without our stores and drivers"},
	{"cluster/redisregistry", []string{"cluster", "dlock", "internal/rediskit", "github.com/redis/go-redis/"},
		"a registry store knows the contract and its driver, and needs no lock store"},
	{"cluster/sqlregistry", []string{"cluster", "dlock", "internal/guard", "internal/sqlkit", "internal/sqlmigrate"},
		"a user of one database must not link the drivers of the others; and the locks may be elsewhere"},
	{"cluster/sqlregistry/pgxregistry", []string{"cluster/sqlregistry", "internal/pgxkit", "github.com/jackc/pgx/"},
		"the one place of the registry that links pgx"},
	{"durable/internal/memory", []string{"durable/internal/store", "internal/flow", "internal/retention",
		"internal/startlog"},
		"it stands in for a database in tests, and knows none"},
	{"service", []string{"", "cluster", "cluster/clustertimer", "cluster/page", "cluster/page/durablepage",
		"cluster/page/outboxpage", "dlock", "durable", "health", "internal/guard", "internal/mask", "outbox", "timer",
		"github.com/prometheus/client_golang/"},
		"it assembles parts on any stores, and links no driver: each package below it knows the stores of one " +
			"database"},
	{"service/pgservice", []string{"cluster/sqlregistry", "cluster/sqlregistry/pgxregistry", "dlock/sqllock",
		"dlock/sqllock/pgxlock", "durable", "durable/pgxdurable", "outbox", "outbox/pgxoutbox", "service", "timer",
		"github.com/jackc/pgx/"},
		"a user of one database must not link the drivers of the others"},
	{"service/sqliteservice", []string{"cluster/sqlregistry", "dlock/sqllock", "durable", "outbox", "service", "timer"},
		"a user of one database must not link the drivers of the others; and the driver of SQLite is the user's"},
	{"service/redisservice", []string{"cluster/redisregistry", "dlock/redislock", "service", "timer",
		"github.com/redis/go-redis/"},
		"a user of one database must not link the drivers of the others"},
	{"durable/internal/kit", []string{"durable/internal/store"},
		"durable sets its functions and durabletest calls them, so it can import neither"},
	{"durable/durabletest", []string{"dlock/driver", "durable", "durable/internal/kit", "durable/internal/memory",
		"internal/testkit"}, "users' tests import it, and must not link a database"},
	{"health", []string{"internal/mask"},
		"it uses any type with the four methods of its Source, which have standard library types; probes are " +
			"public, so their errors are masked"},
	{"health/grpchealth", []string{"google.golang.org/grpc/"},
		"a separate module, so that other users do not download gRPC; connected by functions, it needs no version " +
			"of ours"},
	{"contrib/ping", []string{"internal/guard", "internal/mask", "timer"},
		"it sends the events of a timer's hooks with only the standard library"},
	{"contrib/ping/durableping", []string{"contrib/ping", "durable"},
		"separate from ping, so that users of timers do not link durable"},
	{"contrib/river", []string{"dlock", "dlock/driver", "outbox", "outbox/pgxoutbox", "github.com/jackc/pgx/",
		"github.com/riverqueue/river"},
		"a separate module, so that other users do not download River"},
	{"contrib/watermill", []string{"outbox", "github.com/ThreeDotsLabs/watermill"},
		"a separate module, so that other users do not download Watermill"},
	{"cmd/tickslot", []string{"cmd/tickslot/internal/commands"}, "a separate module; its main has no logic"},
	{"cmd/tickslot/internal/commands", []string{"cluster", "cmd/tickslot/internal/doctor",
		"cmd/tickslot/internal/fleet", "cmd/tickslot/internal/serve", "cmd/tickslot/internal/show",
		"cmd/tickslot/internal/stores", "cmd/tickslot/internal/top", "dlock", "dlock/driver", "durable",
		"internal/inert", "outbox", "timer/control",
		"github.com/charmbracelet/x/term", "github.com/spf13/cobra"},
		"it knows the reads and changes of a fleet, and no driver"},
	{"cmd/tickslot/internal/doctor", []string{"cluster", "cmd/tickslot/internal/stores", "dlock", "dlock/driver",
		"github.com/jackc/pgx/v5/pgxpool"}, "it returns findings, and prints nothing"},
	{"cmd/tickslot/internal/fleet", []string{"cluster", "cmd/tickslot/internal/show", "dlock", "dlock/driver"},
		"it interprets a snapshot, and neither reads nor prints one"},
	{"cmd/tickslot/internal/serve", []string{"", "cluster", "cluster/page", "cluster/page/durablepage",
		"cluster/page/outboxpage", "dlock", "dlock/driver", "durable", "health", "outbox", "timer/control",
		"github.com/prometheus/client_golang/", "golang.org/x/crypto/bcrypt"},
		"it serves the stores and users it is given, and knows no store"},
	{"cmd/tickslot/internal/show", []string{"internal/inert", "github.com/charmbracelet/x/ansi",
		"go.yaml.in/yaml/v3"}, "it prints any data, and imports none of our products"},
	{"cmd/tickslot/internal/top", []string{"cluster", "cmd/tickslot/internal/fleet", "cmd/tickslot/internal/show",
		"internal/inert", "charm.land/bubbletea/v2", "charm.land/lipgloss/v2", "github.com/charmbracelet/x/ansi"},
		"it shows the data it is given, and knows no store"},
	{"cmd/tickslot/internal/stores", []string{"cluster", "cluster/redisregistry", "cluster/sqlregistry",
		"cluster/sqlregistry/pgxregistry", "dlock",
		"dlock/redislock", "dlock/sqllock", "dlock/sqllock/pgxlock", "durable", "durable/pgxdurable", "internal/mask",
		"outbox", "outbox/pgxoutbox", "github.com/redis/go-redis/", "github.com/jackc/pgx/",
		"github.com/go-sql-driver/mysql",
		"modernc.org/sqlite"},
		"the only package of the program that knows the stores"},
	{"oteltickslot", []string{"dlock", "internal/mask", "timer", "go.opentelemetry.io/otel"},
		"a separate module, so that other users do not download OpenTelemetry"},
	{"oteltickslot/oteldurable", []string{"durable", "internal/mask", "go.opentelemetry.io/otel"},
		"separate from oteltickslot, so that users who trace timers do not link durable"},
	{"oteltickslot/oteloutbox", []string{"internal/mask", "outbox", "go.opentelemetry.io/otel"},
		"separate from oteltickslot, so that users who trace timers do not link outbox"},
	{"durable", []string{"dlock", "dlock/driver", "durable/internal/kit", "durable/internal/sqlite",
		"durable/internal/store",
		"internal/answers", "internal/flow", "internal/guard", "internal/loop", "internal/mask", "internal/notify",
		"internal/retention", "internal/lifecycle", "internal/suspend", "schedule",
		"github.com/prometheus/client_golang/"},
		"it has its own locks and rows, so it needs no lock store, timers or leader; and users of SQLite link no " +
			"Postgres driver"},
	{"durable/pgxdurable", []string{"durable", "durable/internal/postgres", "durable/internal/store",
		"internal/pgxkit", "github.com/jackc/pgx/"},
		"the one place of durable that links pgx"},
	{"durable/internal/postgres", []string{"dlock", "durable/internal/store", "internal/flow", "internal/guard",
		"internal/pgxkit", "internal/retention", "internal/sqlkit", "internal/sqlmigrate", "internal/startlog",
		"github.com/jackc/pgx/"},
		"a database is one folder, which knows no worker and no other database; its driver is the one that sends a " +
			"transaction as a whole, and has LISTEN"},
	{"durable/internal/sqlite", []string{"dlock", "durable/internal/store", "internal/flow", "internal/retention",
		"internal/sqlkit", "internal/sqlmigrate", "internal/startlog"},
		"a database is added, or taken out, as one folder: it knows neither a worker nor another database, and its " +
			"user brings the driver"},
	{"durable/internal/store", []string{"internal/flow"},
		"it is the seam: a database implements it without knowing a worker, and a worker " +
			"calls it without knowing a database"},
	{"durable/internal/storetest", []string{"durable/internal/store", "internal/flow", "internal/retention",
		"internal/testkit"},
		"every database runs it on itself, so it must know none"},
	{"outbox", []string{"dlock", "dlock/driver", "dlock/sqllock",
		"internal/answers", "internal/flow", "internal/guard", "internal/loop", "internal/mask", "internal/notify",
		"internal/retention", "internal/lifecycle", "leader",
		"outbox/internal/kit", "outbox/internal/sqlstore", "outbox/internal/store", "github.com/google/uuid",
		"github.com/prometheus/client_golang/"},
		"its relays elect leaders with locks in its own database; it knows no timers or durable runs, and a user of " +
			"one database must not link the drivers of the others"},
	{"outbox/pgxoutbox", []string{"dlock/sqllock", "dlock/sqllock/pgxlock", "internal/pgxkit", "outbox",
		"outbox/internal/sqlstore", "outbox/internal/store", "github.com/jackc/pgx/"},
		"the only package of outbox that links pgx"},
	{"outbox/httpsink", []string{"outbox"}, "it needs only outbox and the standard library"},
	{"outbox/redissink", []string{"outbox", "github.com/redis/go-redis/"},
		"the one place of outbox that links a client for Redis"},
	{"outbox/internal/sqlstore", []string{"dlock", "internal/flow", "internal/guard", "internal/sqlkit",
		"internal/sqlmigrate", "outbox/internal/store"},
		"it knows no relay; its user brings the driver, and on Postgres functions of pgx, which sends a transaction " +
			"as a whole and has LISTEN"},
	{"proof/crash", nil, "all of it is tests"},
	{"outbox/internal/store", []string{"internal/flow"},
		"it is the seam: a database implements it without knowing a relay, and a relay " +
			"calls it without knowing a database"},
	{"outbox/internal/storetest", []string{"internal/flow", "outbox/internal/store", "internal/testkit"},
		"every database runs it on itself, so it must know none"},
	{"outbox/internal/kit", []string{"dlock", "dlock/driver", "outbox/internal/store"},
		"outbox sets its functions and outboxtest calls them, so it can import neither"},
	{"outbox/outboxtest", []string{"dlock/memlock", "outbox", "outbox/internal/kit", "outbox/internal/memory",
		"internal/testkit"}, "the tests of a stranger use it, and must not link a database"},
	{"outbox/internal/memory", []string{"internal/flow", "outbox/internal/store"},
		"it stands in for a database, and knows none"},
	{"internal/loop", nil, "whatever polls a store may use it, so it must know none of them"},
	{"internal/leasestate", []string{"dlock/driver", "internal/startlog"},
		"stores that decide in Go share it, so it must know none of them"},
	{"internal/flow", nil, "durable runs and the outbox count entries by it, so it knows neither"},
	{"internal/startlog", nil, "stores and timers count starts by it, so it knows neither"},
	{"internal/lifecycle", []string{"internal/guard", "internal/loop"},
		"all services use it, so it must not know one of them"},
	{"proof/servertest", []string{"internal/testkit"}, "it runs servers of any kind, and knows no specific one"},
	{"proof/proxytest", []string{"proof/servertest"}, "it starts load balancers, and imports none of our products"},
	{"internal/answers", []string{"internal/guard"},
		"any package that calls a database or a store may use it, so it must not know one of them"},
	{"internal/guard", []string{"internal/mask"}, "every package that calls user code uses it, so it must not know " +
		"one of them"},
	{"internal/retention", []string{"internal/guard", "internal/lifecycle"},
		"any package with rows in a store may use it, so it must not know one of them"},
	{"internal/inert", nil, "any package that shows foreign text may use it"},
	{"internal/mask", nil, "every package that shows, logs or stores an error uses it, so it must not know one of " +
		"them"},
	{"internal/notify", nil, "dlock links it, and dlock uses only the standard library"},
	{"internal/suspend", nil, "dlock links it, and dlock uses only the standard library"},
	{"proof/mutants", nil, "it plants bugs through the compiler, and does not link the broken code"},
	{"proof/matrix", []string{"proof/servertest", "proof/sqltest"}, "it runs tests, and needs only the servers"},
	{"proof/protections", nil, "it runs the tests of all stores and products, and links none of them"},
	{"internal/clocks", []string{"dlock/driver"}, "all stores link it, so it must not know one of them"},
	{"internal/rediskit", []string{"dlock/driver", "internal/clocks", "github.com/redis/go-redis/"},
		"redislock links it, so it must not link redsync"},
	{"internal/pgxkit", []string{"internal/sqlkit", "github.com/jackc/pgx/"},
		"it sends transactions of any kind"},
	{"internal/sqlkit", []string{"dlock/driver", "internal/guard"},
		"it classifies the errors of all drivers by their text, and links no driver"},
	{"internal/sqlmigrate", []string{"internal/guard", "internal/sqlkit", "github.com/pressly/goose/v3"},
		"every package with tables links it, so it has no driver; the only package that links goose"},
	{"proof/redistest", []string{"proof/servertest", "internal/testkit", "github.com/redis/go-redis/"},
		"it starts servers, and imports none of our products"},
	{"proof/sqltest", []string{"proof/servertest", "internal/testkit"},
		"it starts servers, and imports none of our products; tests bring their drivers"},
	{"internal/testkit", nil, "every package's tests use it, so it must not know one of them"},
	{"proof/timertest", []string{"dlock", "dlock/driver", "dlock/dlocktest", "health", "leader", "schedule", "timer",
		"timer/control", "internal/testkit"},
		"every store runs it, so it must not know one"},
	{"proof/simulate", nil, "it contains only tests"},
	{"proof/acceptance", nil, "it contains only tests"},
	{"proof/registrycost", nil, "it contains only tests"},
	{"proof/torture", nil, "its checker must not rely on the library"},
	{"proof/torture/crowd", []string{"dlock", "dlock/driver", "internal/testkit", "proof/torture"},
		"it works on any store"},
	{"proof/torture/linear", []string{"proof/torture", "github.com/anishathalye/porcupine"},
		"it checks logs from any source"},
	{"proof/torture/owners", []string{"proof/torture"},
		"it checks logs, and must not rely on the library"},
	{"proof/torture/deliveries", []string{"proof/torture"},
		"it checks logs, and must not rely on the library"},
	{"proof/torture/nemesis", []string{"proof/servertest", "proof/sqltest", "internal/testkit",
		"proof/torture", "github.com/jackc/pgx/"},
		"it causes faults in any processes, networks and servers"},
	{"proof/torture/durable", []string{"dlock/driver", "durable", "durable/pgxdurable", "schedule", "proof/sqltest",
		"internal/testkit", "proof/torture", "proof/torture/nemesis", "proof/torture/owners",
		"modernc.org/sqlite"},
		"a program of our own"},
	{"proof/torture/outbox", []string{"outbox", "outbox/httpsink", "outbox/pgxoutbox", "proof/sqltest",
		"internal/testkit",
		"proof/torture", "proof/torture/deliveries", "proof/torture/nemesis",
		"github.com/go-sql-driver/mysql", "modernc.org/sqlite"},
		"a program of our own"},
	{"proof/torture/fleet", []string{"dlock", "dlock/driver", "dlock/redislock", "dlock/sqllock",
		"dlock/sqllock/pgxlock",
		"cluster", "cluster/clustertimer", "cluster/redisregistry", "cluster/sqlregistry",
		"cluster/sqlregistry/pgxregistry", "leader", "schedule",
		"timer", "proof/redistest", "proof/sqltest", "proof/servertest", "internal/testkit",
		"proof/torture", "proof/torture/linear", "proof/torture/nemesis", "github.com/redis/go-redis/",
		"github.com/jackc/pgx/", "github.com/go-sql-driver/mysql"},
		"a program of our own"},
	{"proof/benchmarks", []string{"dlock", "dlock/driver", "dlock/memlock", "dlock/redislock",
		"dlock/redlock", "dlock/sqllock",
		"dlock/sqllock/pgxlock", "durable", "durable/pgxdurable", "outbox", "outbox/pgxoutbox", "schedule", "timer",
		"contrib/river",
		"proof/redistest", "proof/sqltest", "proof/servertest", "internal/testkit", "github.com/",
		"go.etcd.io/etcd/", "gonum.org/v1/plot", "modernc.org/sqlite"},
		"it is a module of its own, which keeps rivals from users, so it may have any of them; it is no place " +
			"to borrow from"},
	{"examples", []string{"dlock", "dlock/driver", "leader", "dlock/memlock", "dlock/redislock", "dlock/sqllock",
		"dlock/sqllock/pgxlock", "dlock/dlocktest",
		"schedule", "timer", "timer/manager", "health", "examples/testing", "examples/internal/demo",
		"github.com/redis/go-redis/", "github.com/alicebob/miniredis/", "github.com/prometheus/client_golang/",
		"modernc.org/sqlite", "github.com/jackc/pgx/", "github.com/go-sql-driver/mysql"},
		"examples use what a user would"},
	{"examples/service", []string{"", "cluster/page", "dlock", "durable", "leader", "outbox", "outbox/httpsink",
		"schedule", "service", "service/sqliteservice", "timer", "modernc.org/sqlite"},
		"it is the program that one shows a colleague, so it names no part that the assembly makes; an election is " +
			"its own"},
	{"examples/testing", []string{"dlock", "durable", "outbox", "schedule", "timer"},
		"it stands for a program of a user, whose tests bring what they test with"},
	{"examples/quickstart", []string{"dlock", "dlock/memlock", "examples/internal/demo"},
		"a stranger waits until all that it links is compiled, so it links no driver"},
	{"examples/registry", []string{"", "cluster", "dlock", "leader", "schedule", "service", "service/sqliteservice",
		"timer", "modernc.org/sqlite"},
		"it shows what a service links that has a registry: its database, and no other"},
	{"examples/durable", []string{"dlock/driver", "durable", "schedule", "modernc.org/sqlite"},
		"it shows what a program links that has durable runs on SQLite"},
	{"examples/outbox", []string{"outbox", "modernc.org/sqlite"},
		"it shows what a program links that has an outbox on SQLite"},
	{"examples/migrate", []string{"dlock", "schedule", "timer", "github.com/"},
		"it is a module of its own, so it may have what people come from"},
	{"examples/internal/fleettest", nil, "it sees of an example only what its processes print"},
	{"examples/internal/demo", []string{"dlock", "dlock/driver", "schedule", "timer"},
		"the same, and it is played on any store"},
	{"examples/internal/demo/demotest", []string{"examples/internal/demo"}, "it checks examples, on any store"},
}

func TestImportsPointInOneDirection(t *testing.T) {
	seen := map[string]bool{}
	for folder, pkg := range packages(t) {
		r, ok := ruleFor(folder)
		if !ok {
			t.Errorf("%s: no rule says what it may import: add one, with its reason", folder)
			continue
		}
		seen[r.folder] = true
		for _, path := range pkg.Imports {
			if !allowed(r, path) {
				t.Errorf("%s must not import %s: %s", folder, path, r.why)
			}
		}
	}
	for _, r := range rules {
		if !seen[r.folder] {
			t.Errorf("there is no package in %s any more: take its rule out", r.folder)
		}
	}
}

// A user of one database must not link the driver of another. Only dedicated packages link drivers,
// and no other library package links one, even indirectly.
//
// Fails when durable, outbox, a page or a registry links a driver.
func TestDriversAreLinkedByTheirPackagesOnly(t *testing.T) {
	linkers := map[string][]string{
		"github.com/jackc/pgx/": {"cluster/sqlregistry/pgxregistry", "dlock/sqllock/pgxlock",
			"durable/internal/postgres", "durable/pgxdurable", "internal/pgxkit", "outbox/pgxoutbox",
			"service/pgservice"},
		"github.com/redis/go-redis/": {"cluster/redisregistry", "dlock/redislock", "dlock/redlock", "internal/rediskit",
			"outbox/redissink", "service/redisservice"},
		"go.etcd.io/etcd/":                   {"dlock/caslock/etcdlock"},
		"github.com/Azure/azure-sdk-for-go/": {"dlock/caslock/azurelock"},
		"github.com/aws/":                    {"dlock/caslock/dynamolock"},
		"github.com/go-sql-driver/mysql":     nil,
		"modernc.org/sqlite":                 nil,
	}
	all := packages(t)
	for name, may := range linkers {
		for folder := range all {
			if slices.Contains([]string{"cmd", "contrib", "examples", "proof"}, strings.Split(folder, "/")[0]) {
				continue // programs and modules may link drivers
			}
			if way := wayTo(all, folder, name, map[string]bool{}); way != nil != slices.Contains(may, folder) {
				t.Errorf("%s links %s: %t, by way of %q", folder, name, way != nil, way)
			}
		}
	}
}

// wayTo returns the chain of imports from a package to a driver, or nil if there is none.
func wayTo(all map[string]*build.Package, folder, driver string, seen map[string]bool) []string {
	if seen[folder] || all[folder] == nil {
		return nil
	}
	seen[folder] = true
	for _, path := range all[folder].Imports {
		inner, ours := strings.CutPrefix(path, module+"/")
		if path == module {
			inner, ours = ".", true
		}
		if !ours && strings.HasPrefix(path, driver) {
			return []string{folder}
		}
		if way := wayTo(all, inner, driver, seen); ours && way != nil {
			return append([]string{folder}, way...)
		}
	}
	return nil
}

// The internal packages are the lowest layer. proof is the highest: it may import everything, and
// nothing imports it.
//
// Fails when a rule lets an internal package import a product, or a package outside proof import
// proof.
func TestInternalIsBelowAndProofAbove(t *testing.T) {
	products := []string{"timer", "leader", "durable", "outbox", "cluster", "health", "schedule"}
	for _, r := range rules {
		floor, _, _ := strings.Cut(r.folder, "/")
		for _, path := range r.may {
			house, _, _ := strings.Cut(path, "/")
			if floor == "internal" && slices.Contains(products, house) {
				t.Errorf("%s may import %s, which is above it", r.folder, path)
			}
			if floor != "proof" && house == "proof" {
				t.Errorf("%s may import %s: only tests may", r.folder, path)
			}
		}
	}
}

// A store that wraps another passes on the other's capabilities. If code asserted optional
// interfaces in many places, a wrapper could miss one unnoticed.
//
// Fails when code outside dlock/driver asserts an optional interface of a store.
func TestCapabilitiesAreResolvedInOnePlace(t *testing.T) {
	assertion := regexp.MustCompile(`\.\((driver\.)?(Checker|TTLBounder|SlotBounder|Sharder|Auditor|Lister|Enumerator|Controller|` +
		`SharedLimiter|Delayer)\)`)
	exceptions := map[string]string{
		"dlock/driver/capabilities.go":    "this is the place",
		"dlock/sqllock/stores.go":         "it asks a driver, which is no store",
		"dlock/sqllock/control_test.go":   "a store of ours, which has it",
		"proof/torture/fleet/nodestop.go": "a store of ours, which has it",
	}
	for path := range goFiles(t) {
		if strings.HasPrefix(path, "schedule/") { // a schedule may be a Checker too
			continue
		}
		if found := assertion.FindString(read(t, path)); found != "" && exceptions[path] == "" {
			t.Errorf("%s asserts %s: use driver.CapabilitiesOf", path, found)
		}
	}
}

// Every package has a package comment.
func TestEveryPackageHasADoc(t *testing.T) {
	for folder, pkg := range packages(t) {
		if pkg.Doc == "" {
			t.Errorf("%s has no package comment", folder)
		}
	}
}

func allowed(r rule, path string) bool {
	if inner, ok := strings.CutPrefix(path+"/", module+"/"); ok {
		return slices.Contains(r.may, strings.TrimSuffix(inner, "/"))
	}
	if first, _, _ := strings.Cut(path, "/"); !strings.Contains(first, ".") {
		return true // the standard library
	}
	return slices.ContainsFunc(r.may, func(prefix string) bool { return strings.HasPrefix(path, prefix) })
}

func ruleFor(folder string) (best rule, ok bool) {
	for _, r := range rules {
		if (folder == r.folder || strings.HasPrefix(folder, r.folder+"/")) &&
			(!ok || len(r.folder) > len(best.folder)) {
			best, ok = r, true
		}
	}
	return best, ok
}

// packages reads the imports of every package of this module, without its tests.
func packages(t *testing.T) map[string]*build.Package {
	t.Helper()
	found := map[string]*build.Package{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name := d.Name(); path != "." && (strings.HasPrefix(name, ".") || name == "testdata" ||
			filepath.ToSlash(path) == "internal/tools") {
			return filepath.SkipDir
		}
		pkg, err := build.ImportDir(path, 0)
		if _, none := err.(*build.NoGoError); none || err == nil && len(pkg.GoFiles) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		found[filepath.ToSlash(path)] = pkg
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
