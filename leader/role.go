package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/mask"
)

const (
	// defaultRetryInterval is the default of Role.RetryInterval.
	defaultRetryInterval = 5 * time.Second
	// defaultStopTimeout is the default of Role.StopTimeout.
	defaultStopTimeout = 30 * time.Second

	// MaxBackOff is the longest time that a host waits after its function has failed, unless
	// RetryInterval is longer. The first wait is 1 to 2 RetryIntervals, and it doubles with each
	// failure in a row. A term that lasts for MaxBackOff ends the series of failures.
	MaxBackOff = time.Minute

	minRetryInterval = 10 * time.Millisecond
	maxRetryInterval = time.Hour

	// lockPrefix precedes the name of a role in the name of its lock, so that a role may have the
	// same name as a timer or a mutex.
	lockPrefix = "leader:"
)

// A Func does the work of a leader. It should run until ctx ends, and then return soon. If it
// returns earlier, nil or not, it gives up the role: see the package documentation.
//
// ctx has the values of the context of Run. If the role was lost, the cause of its end
// ([context.Cause]) matches [dlock.ErrLost]. If Run's context has ended, the cause is the same as
// Run's.
type Func func(ctx context.Context, term *Term) error

// A Role is what hosts compete for. Name and Run are required. New returns all faults of a Role at
// once.
type Role struct {
	// Name identifies the role; it is the same on every host. The lock in the store is
	// "leader:<Name>". 1 to 249 bytes of text, with the rules of driver.CheckName. Required.
	Name string
	// Max is how many hosts may lead at once. If hosts have different numbers, as during a rolling
	// deploy, they never exceed the largest together. 1 to 10,000 (driver.MaxSlots). Default 1.
	Max int
	// Run is called whenever this host is elected. Required.
	Run Func

	// RetryInterval is how often a host that does not lead asks the store. Each pause is 80 to
	// 100 % of it, at random. 10 ms to 1 h. Default 5 s.
	RetryInterval time.Duration
	// StopTimeout is how long Elector.Run waits for the function after its own context has ended.
	// Then it returns a StuckError, and the role is free when its lease has expired. Default 30 s.
	StopTimeout time.Duration

	// Logger gets a line for each change: elected, lost, failed, another leader, the store down and
	// back. It is called on a goroutine of its own. Default slog.Default().
	Logger *slog.Logger
	// Registerer gets the metrics of docs/metrics.md, with the role as a label. They are
	// unregistered when Run returns. Default nil: no metrics.
	Registerer prometheus.Registerer
}

func (r Role) withDefaults() Role {
	if r.Max == 0 {
		r.Max = 1
	}
	if r.RetryInterval == 0 {
		r.RetryInterval = defaultRetryInterval
	}
	if r.StopTimeout == 0 {
		r.StopTimeout = defaultStopTimeout
	}
	r.Logger = mask.Logger(r.Logger)
	return r
}

// validate returns every fault. Defaults must be filled in.
func (r Role) validate() error {
	var errs []error
	fault := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: "+format, append([]any{field}, args...)...))
	}
	if r.Name == "" {
		fault("Name", "it is empty")
	} else if err := driver.CheckName(lockPrefix + r.Name); err != nil {
		fault("Name", "%w", err)
	}
	if r.Run == nil {
		fault("Run", "it is nil")
	}
	if r.Max < 1 || r.Max > driver.MaxSlots {
		fault("Max", "%d: use 1 to %d", r.Max, driver.MaxSlots)
	}
	if r.RetryInterval < minRetryInterval || r.RetryInterval > maxRetryInterval {
		fault("RetryInterval", "%v: use %v to %v", r.RetryInterval, minRetryInterval, maxRetryInterval)
	}
	if r.StopTimeout < 0 {
		fault("StopTimeout", "%v is negative", r.StopTimeout)
	}
	return errors.Join(errs...)
}
