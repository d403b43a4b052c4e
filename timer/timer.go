package timer

import (
	"context"
	"math"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer/internal/fleet"
)

// NoLimit disables a limit: a number of runs, MaxRunTime, CatchUp.Window, or AlarmAfter.
const NoLimit = -1

// unlimited replaces NoLimit once the settings are checked, so that limits can be compared. shown
// converts it back to NoLimit.
const unlimited = math.MaxInt

// limitOf returns the internal value of a limit.
func limitOf(setting int) int {
	if setting == NoLimit {
		return unlimited
	}
	return setting
}

// shown returns a limit as it appears in Status.
func shown(limit int) int {
	if limit == unlimited {
		return NoLimit
	}
	return limit
}

// shownTime is like shown, for a duration.
func shownTime(limit time.Duration) time.Duration {
	if limit == math.MaxInt64 {
		return NoLimit
	}
	return limit
}

// timeOf is like limitOf, for a duration.
func timeOf(setting time.Duration) time.Duration {
	if setting == NoLimit {
		return math.MaxInt64
	}
	return setting
}

const (
	// MaxNameLen is the maximum length of a timer's Name, in bytes.
	MaxNameLen = 200
	// defaultMaxRunTime is the default of Timer.MaxRunTime.
	defaultMaxRunTime = time.Hour

	maxLimit = driver.MaxSlots
)

// A Timer is one recurring job. Only Name and Run are required. New, Register and Update return all
// faults of a Timer at once. Each error explains how to fix the fault.
type Timer struct {
	// Name identifies the timer. Hosts whose timers have the same name share its limits. 1 to 200
	// bytes of text, without control characters, and without "slot:" at the beginning or after a
	// colon. Required.
	Name string

	// Schedule says when the timer is due. Default nil: it runs only when Trigger is called.
	//
	// With schedule.After(d), the timer is due d after its last run ended anywhere in the fleet:
	// see "A fixed delay" in the package documentation. After requires a store that is a
	// driver.Delayer, and a MaxConcurrency and MaxPerTick of 1. It excludes CatchUp, Delay and
	// RunOnStart.
	//
	// A timer whose schedule has no further tick (At, Times, or an Except of one of these) is
	// removed ten minutes after its last tick, or later, once its runs have ended. Trigger, Remove
	// and Explain then return ErrNoTimer.
	//
	// If the schedule panics or returns a tick in the past, it is called again after 1 min, and
	// then after pauses that double, up to 1 h. The timer is not due in the meantime.
	Schedule schedule.Schedule

	// MaxConcurrency is how many runs may be in progress at once in the fleet. If hosts have
	// different values, as during a rolling deployment, together they never exceed the largest. 1
	// to 10,000, or NoLimit, which the store counts as 10,000. A store that is a driver.SlotBounder
	// allows fewer. Default 1.
	MaxConcurrency int

	// MaxPerTick is how many runs one tick may start in the fleet. With 1, each tick runs once.
	// With N, up to N hosts run it. With NoLimit, every host runs it. A host starts at most one run
	// per tick. With N above 1, all N runs start only if the hosts' clocks agree within an
	// interval. Otherwise hosts whose clocks are ahead claim later ticks, and the other hosts are
	// too late (ReasonTickLate). 1 to 10,000, or NoLimit.
	//
	// Required if the timer has a Schedule, hosts share a store, and MaxConcurrency is more than 1.
	// In all other cases hosts do not share ticks, or only one run is in progress at a time. The
	// default is then MaxConcurrency: for a timer that is only triggered, for a LocalOnly timer,
	// and without a store. An override of MaxConcurrency at run time does not change MaxPerTick.
	MaxPerTick int

	// MaxPerHost is how many runs may be in progress at once on this host. 1 to MaxConcurrency, or
	// NoLimit, which is the same as MaxConcurrency. Default MaxConcurrency.
	MaxPerHost int

	// Limits are the names of the Config.Limits that the timer shares with other timers. A run
	// takes a slot of each of them together with its own slot, in one step, or does not start
	// (ReasonLimitFull, ReasonLimitRate). A run that loses any of these slots has lost its lease.
	// While the timer runs without the store (StoreDownRunLocal), each host enforces the limits
	// separately.
	//
	// Ticks take free slots as they come due. Timers that keep a limit busy may therefore starve
	// others, unless the others wait (FullWait). Triggers of a Control take turns with ticks: see
	// control.Control.Trigger.
	//
	// The store must be able to take several locks in one step. redislock, sqllock and memlock can.
	// On a Redis Cluster, redislock's Prefix must have a hash tag. At most 10 names. LocalOnly
	// timers cannot have Limits. Default: none.
	Limits []string

	// MaxRunTime is how long a run may take. After that, its context ends (cause ErrMaxRunTime) and
	// its lease is no longer renewed. Config.TTL, not MaxRunTime, determines how soon the slot of a
	// dead host is free. NoLimit: no bound. Default 1 h.
	MaxRunTime time.Duration

	// Blackouts are periods in which the schedule starts no run. A tick that this host would start
	// in a blackout is skipped. Trigger ignores Blackouts. While a blackout panics, the schedule
	// starts nothing. Config.Blackouts also apply. Default: none.
	Blackouts []schedule.Blackout

	// CatchUp decides what happens to ticks that were due while this host, or the whole fleet, was
	// not running. Default: the latest missed tick runs if the schedule is a calendar or has a day
	// or more between ticks; see CatchUp.Policy.
	CatchUp CatchUp

	// Delay postpones the start of ticks, so that timers and hosts do not all start at once.
	// Default: no delay.
	Delay Delay

	// LeastRecentFirst makes a host that ran one of the latest ticks wait before it claims the next
	// one, so that other hosts come first. The wait is up to 100 ms, and longer the more recently
	// the host ran a tick. It spreads runs more evenly if clocks agree within milliseconds, but
	// guarantees nothing. It needs a store that lists its leases, so that hosts know how many hosts
	// there are. After a host has joined or left, it takes a few ticks to adapt. Default false: the
	// first host to claim a tick runs it. That is often the same host, because its clock is
	// slightly ahead or it is closer to the store.
	LeastRecentFirst bool

	// RunOnStart says whether the timer also runs when Run begins on a host, without waiting for
	// its Schedule. Default RunOnStartNever.
	RunOnStart RunOnStartPolicy

	// OnFull decides what happens to a tick while as many runs are in progress as MaxPerHost,
	// MaxConcurrency or Limits allow. Default FullSkip.
	OnFull FullPolicy

	// OnStoreDown decides what happens while the store does not answer. It does not apply if the
	// store answers that it is not set up correctly (dlock.ErrSetup), or that a key of this timer
	// has a fault (dlock.ErrFault). Ticks are then skipped. Default StoreDownRunLocal.
	OnStoreDown StoreDownPolicy

	// AlarmAfter is the number of ticks without a successful run on any host after which
	// TimersSucceed returns an error. Ticks in a blackout do not count. A tick does not count
	// either while its run, or the runs that held the slots when it was due, are within MaxRunTime.
	// With a store that does not report the successes of other hosts (nativelock, redlock), a host
	// counts only its own runs. 1 or more, or NoLimit: never. Default 5.
	AlarmAfter int

	// Retry says whether and when Run is called again within the same run after it failed. Default:
	// no retry.
	Retry Retry

	// LocalOnly makes this timer ignore the store, so that its limits apply to each host
	// separately. Default false.
	LocalOnly bool

	// Run does the work. Config.Middleware wraps it. Its context ends when the lease of its slot is
	// lost, after MaxRunTime, or when draining takes longer than DrainTimeout. It does not end with
	// the context of Scheduler.Run. An error or a panic is logged, counted, and retried if Retry
	// allows it. The next tick is tried as usual. Required.
	Run func(ctx context.Context) error
}

// A CatchUp decides what happens to missed ticks. These are the ticks that were due while this
// host, or the whole fleet, was not running, and the ticks for which a host is more than 11 s late.
type CatchUp struct {
	// Policy says which missed ticks run. Default CatchUpOnce for calendars (Cron, Daily, At) and
	// for an Every of a day or longer, CatchUpSkip for all other schedules. CatchUpOnce requires a
	// Schedule.
	Policy CatchUpPolicy

	// Window is the maximum age of a missed tick that CatchUpOnce runs. NoLimit: any age. Default 1
	// h.
	Window time.Duration
}

// A Delay postpones the start of a tick, but not the tick itself, which remains the same instant on
// every host. The delays of all fields are added.
type Delay struct {
	// ByTimer delays all ticks of the timer by a fixed part of this duration. The part is computed
	// from the timer's name, so that timers with the same schedule do not all start at once. At
	// most 24 h. Default 0: no delay.
	ByTimer time.Duration

	// ByHost is like ByTimer, but the part is computed from the names of the timer and the host, so
	// that hosts that all run a tick do not start at once. It requires MaxPerTick: NoLimit. At most
	// 24 h. Default 0: no delay.
	ByHost time.Duration

	// Jitter delays every tick by a random time, up to this fraction of the time to the next tick.
	// A tick has the same delay on every host. 0 to 0.5. Default 0: no delay.
	Jitter float64
}

// A StoreDownPolicy decides what a timer does while the store does not answer.
type StoreDownPolicy uint8

const (
	// StoreDownRunLocal makes the timer continue without the store. Ticks start up to MaxPerHost
	// runs on each host. If a lease can no longer be trusted because the store does not answer, its
	// run continues. Such runs are degraded and not Valid. At most hosts × MaxPerHost runs are in
	// progress at the same time. A store that restarted and is in quarantine does answer, so that
	// is not an outage. Nor is a fault that the store reports: every host would get the same fault,
	// and all of them would run every tick until it is fixed.
	StoreDownRunLocal StoreDownPolicy = iota
	// StoreDownSkip starts no run, and ends a run when its lease can no longer be trusted. The
	// limit holds during an outage.
	StoreDownSkip
)

func (s StoreDownPolicy) String() string {
	switch s {
	case StoreDownRunLocal:
		return "run_local"
	case StoreDownSkip:
		return "skip"
	default:
		return "unknown"
	}
}

// withDefaults sets the defaults, and replaces NoLimit by unlimited. The fields must have been
// checked.
func (t Timer) withDefaults() Timer {
	t.MaxConcurrency, t.MaxPerTick, t.MaxPerHost = limitOf(t.MaxConcurrency), limitOf(t.MaxPerTick),
		limitOf(t.MaxPerHost)
	t.AlarmAfter, t.MaxRunTime, t.CatchUp.Window = limitOf(t.AlarmAfter), timeOf(t.MaxRunTime), timeOf(t.CatchUp.Window)
	if t.MaxConcurrency == 0 {
		t.MaxConcurrency = 1
	}
	if t.MaxPerTick == 0 {
		t.MaxPerTick = t.MaxConcurrency
	}
	if t.MaxPerHost == 0 {
		t.MaxPerHost = t.MaxConcurrency
	}
	if t.AlarmAfter == 0 {
		t.AlarmAfter = defaultAlarmAfter
	}
	if t.CatchUp.Policy == CatchUpDefault {
		t.CatchUp.Policy = CatchUpSkip
		if t.Schedule != nil && schedule.CatchesUp(t.Schedule) {
			t.CatchUp.Policy = CatchUpOnce
		}
	}
	if t.CatchUp.Window == 0 {
		t.CatchUp.Window = defaultCatchUpWindow
	}
	if t.MaxRunTime == 0 {
		t.MaxRunTime = defaultMaxRunTime
	}
	t.Retry = t.Retry.withDefaults()
	t.Schedule = schedule.ForName(t.Schedule, t.Name)
	return t
}

// lockName returns the timer's name in the store. Its slots are timer:<name>:slot:<i>.
func (t Timer) lockName() string { return fleet.TimerLock(t.Name) }

// A Handler does the work of a run. Timer.Run is a Handler.
type Handler func(ctx context.Context) error

// A Middleware wraps the Run of every timer, to run code before, after or around each attempt:
// start a span, add values to the context, measure, or turn a panic into an error. It returns a
// Handler that calls next, usually once.
//
//	func logged(next timer.Handler) timer.Handler {
//		return func(ctx context.Context) error {
//			run, _ := timer.RunFromContext(ctx)
//			log.Println(run.Timer(), "begins")
//			defer log.Println(run.Timer(), "ends")
//			return next(ctx)
//		}
//	}
//
// A Middleware is called once for each timer, when the timer is registered or updated, and again if
// the clock is set back at that moment. It runs in the goroutine of New, Register or Update. If it
// panics or returns nil, the registration fails.
//
// The Handler that it returns is part of the run. It runs in the run's goroutine for every attempt,
// holds the slot, and is bounded by MaxRunTime. Its error or panic counts as the error or panic of
// the attempt. If it does not call next, Run is not called, and the attempt ends with the Handler's
// error. It should not return before next has returned, because the slot is then released. The
// context that it passes to next must be derived from its own, because RunFromContext needs that.
//
// To observe runs without taking part in them, use Hooks.
type Middleware func(next Handler) Handler
