package cluster

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/mask"
)

const (
	// defaultTTL is the default of Config.TTL.
	defaultTTL = 30 * time.Second
	// defaultStoreTimeout is the default of Config.StoreTimeout, unless a sixth of TTL is less.
	defaultStoreTimeout = 3 * time.Second
	// defaultSnapshotAge is the default of Config.SnapshotAge.
	defaultSnapshotAge = time.Second
	// defaultEventRetention is the default of Retention.Events.
	defaultEventRetention = 7 * 24 * time.Hour
	// defaultRunRetention is the default of Retention.Runs. It is long because a timer may run only
	// once a week. A store keeps only the last RunsPerTimer runs of a timer anyway.
	defaultRunRetention = 90 * 24 * time.Hour

	minTTL          = 100 * time.Millisecond
	maxTTL          = time.Hour
	minRetention    = time.Minute
	minStoreTimeout = time.Millisecond
)

// A Config holds the settings of a Registry. Store is required. New returns all faults of the
// settings at once. Durations are measured by this host's monotonic clock.
type Config struct {
	// Store keeps the registry. Give it its own connections, so that it never takes one from the
	// locks. Required.
	Store Store
	// Locks is the store whose leases Snapshot lists, if it is a driver.Enumerator. Default nil:
	// Snapshot lists only recorded leases.
	Locks dlock.DistributedLock

	// Holder identifies this process in the registry. Pass the same Holder (Registry.Holder) to
	// timer.Config.Holder and dlock.SessionOptions.Holder, so that leases match their host. Its ID
	// must be new after each restart, because a store ignores a heartbeat with a shorter uptime
	// than the previous one. Default dlock.NewHolder().
	Holder dlock.Holder
	// Environment is a name such as "production" or "staging". If a live host on the same store has
	// a different one, the registry refuses this process: the parts given to Registry.Add before
	// their Run start nothing and return an error (see Registry.Admit). A process with "" is never
	// refused and causes no refusal. At most 64 bytes. Default "": no check.
	Environment string
	// AppVersion is the version of your program. At most 64 bytes. Default: the version of the main
	// module in debug.ReadBuildInfo.
	AppVersion string

	// TTL is how long this process may be silent before others consider it suspect. After twice
	// that time they consider it gone. Heartbeats are sent every TTL/3. 100 ms to 1 h. Default 30
	// s.
	TTL time.Duration
	// StoreTimeout bounds each call to Store, and each page of leases read from Locks. 1 ms to
	// TTL/3. Default 3 s, or TTL/6 if that is shorter.
	StoreTimeout time.Duration
	// SnapshotAge is how long callers of Snapshot share the result of one read. Default 1 s.
	SnapshotAge time.Duration

	// Kind returns the kind of the lock with the given name, at most 64 bytes, or "" for none. If
	// it panics or takes longer than 10 ms, KindOf is used instead. Default KindOf, which derives
	// the kind from the prefix of the name.
	Kind func(name string) string
	// Retention is how long rows are kept. Default: the default of each field.
	Retention Retention

	// Logger receives a line when the registry starts to fail, when it recovers, when this process
	// is refused, and when hosts of other environments exist. It is called on a separate goroutine.
	// Default slog.Default().
	Logger *slog.Logger
	// Registerer receives the metrics of docs/metrics.md from New until Run returns. Two registries
	// in one process need separate registerers, or prometheus.WrapRegistererWith. Default nil: no
	// metrics.
	Registerer prometheus.Registerer
}

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	def(&c.TTL, defaultTTL)
	def(&c.StoreTimeout, min(defaultStoreTimeout, c.TTL/6))
	def(&c.SnapshotAge, defaultSnapshotAge)
	def(&c.Retention.Hosts, max(time.Minute, 3*c.TTL))
	def(&c.Retention.Leases, max(time.Minute, 3*c.TTL))
	def(&c.Retention.Events, defaultEventRetention)
	def(&c.Retention.Runs, defaultRunRetention)
	if c.Holder == (dlock.Holder{}) {
		c.Holder = dlock.NewHolder()
	}
	if c.AppVersion == "" {
		if info, ok := debug.ReadBuildInfo(); ok {
			c.AppVersion = info.Main.Version
		}
		c.AppVersion = clean(c.AppVersion, maxKindLen)
	}
	c.Logger = mask.Logger(c.Logger)
	return c
}

// validate returns all faults. It expects defaults to be filled in.
func (c Config) validate() error {
	var errs []error
	fault := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: "+format, append([]any{field}, args...)...))
	}
	if c.Store == nil {
		fault("Store", "it is nil: use one of sqlregistry or redisregistry, or NewMemoryStore in a test")
	}
	if c.TTL < minTTL || c.TTL > maxTTL {
		fault("TTL", "%v: use %v to %v", c.TTL, minTTL, maxTTL)
	} else if c.StoreTimeout < minStoreTimeout || c.StoreTimeout > c.TTL/3 {
		fault("StoreTimeout", "%v: use %v to a third of TTL (%v)", c.StoreTimeout, minStoreTimeout, c.TTL/3)
	}
	if c.SnapshotAge < 0 {
		fault("SnapshotAge", "%v is negative", c.SnapshotAge)
	}
	for _, text := range []struct{ field, text string }{{"Environment", c.Environment}, {"AppVersion", c.AppVersion}} {
		if text.text != clean(text.text, maxKindLen) {
			fault(text.field, "%.80q: use up to %d bytes of text without control characters", text.text, maxKindLen)
		}
	}
	if h := c.Holder; h != cleanHolder(h) {
		fault("Holder", "%.80q: use text without control characters, up to %d bytes in Host and %d in ID",
			h.String(), maxNameLen, maxKindLen)
	}
	for _, r := range []struct {
		field     string
		keep, min time.Duration
	}{{"Hosts", c.Retention.Hosts, max(minRetention, 3*c.TTL)}, {"Leases", c.Retention.Leases, minRetention},
		{"Events", c.Retention.Events, minRetention}, {"Runs", c.Retention.Runs, minRetention}} {
		if r.keep < r.min {
			fault("Retention."+r.field, "%v: use at least %v", r.keep, r.min)
		}
	}
	return errors.Join(errs...)
}

// version returns the version of this module in the running program.
func version() string {
	const path = "github.com/tickslot/tickslot"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, dep := range info.Deps {
		if dep.Path == path {
			return clean(dep.Version, maxKindLen)
		}
	}
	return clean(info.Main.Version, maxKindLen)
}
