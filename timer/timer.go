package timer

import (
	"context"
	"math"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/schedule"
)

// NoLimit turns a limit off: a number of runs, MaxRunTime, CatchUp.Window, or AlarmAfter.
const NoLimit = -1

// unlimited is what NoLimit becomes once the settings were checked, so that limits can be compared.
// What is shown to others says NoLimit again: see shown.
const unlimited = math.MaxInt

// limitOf is a limit of the settings as the scheduler reckons with it.
func limitOf(setting int) int {
	if setting == NoLimit {
		return unlimited
	}
	return setting
}

// shown is a limit as Status tells it.
func shown(limit int) int {
	if limit == unlimited {
		return NoLimit
	}
	return limit
}

// timeOf is the same for a limit of time.
func timeOf(setting time.Duration) time.Duration {
	if setting == NoLimit {
		return math.MaxInt64
	}
	return setting
}

const (
	// MaxNameLen is the longest Name of a timer, in bytes.
	MaxNameLen = 200
	// DefaultMaxRunTime is after how long a run's context ends unless its timer says otherwise.
	DefaultMaxRunTime = time.Hour

	maxLimit = dlock.MaxSlots
)

// A Timer is one recurring job. Only Name and Run are required.
type Timer struct {
	// Name identifies the timer in the fleet: hosts whose timers have the same name share its
	// limits. 1 to 200 bytes of text without control characters, and without "slot:" at its
	// beginning or after a colon.
	Name string

	// Schedule says when the timer is due. Nil: only when Trigger is called. Default nil.
	Schedule schedule.Schedule

	// MaxConcurrency is how many runs may go on at once in the fleet. Hosts that state different
	// numbers, as in a rolling deploy, together never exceed the largest. 1 to 10,000, or NoLimit,
	// which is 10,000 as far as the store is concerned. Default 1.
	MaxConcurrency int

	// MaxPerTick is how many runs one tick may start in the fleet. 1 to 10,000, or NoLimit: one per
	// host. Default MaxConcurrency, as it stands here: who raises that has each tick run on more
	// hosts, unless he states MaxPerTick: 1, too. Another MaxConcurrency that is set at run time
	// changes nothing of it. A host starts at most one run per tick.
	MaxPerTick int

	// MaxPerHost is how many runs may go on at once on this host. At most MaxConcurrency. Default
	// MaxConcurrency.
	MaxPerHost int

	// MaxRunTime is how long a run may take. Then its context ends (cause ErrMaxRunTime) and its
	// slot is no longer renewed. It has nothing to do with how fast the slot of a dead host comes
	// back, which is Config.TTL. NoLimit: as long as it takes. Default 1 h.
	MaxRunTime time.Duration

	// Blackouts are times in which the timer starts nothing by its schedule: ticks that this host
	// comes to in one are skipped. Trigger does not obey them. One that panics lets nothing start.
	// Config.Blackouts come on top. Default none.
	Blackouts []schedule.Blackout

	// CatchUp decides about ticks that came due while this host, or the whole fleet, was not there.
	CatchUp CatchUp

	// Delay moves the start of ticks, so that not all timers and hosts start at once. Default none.
	Delay Delay

	// LeastRecentFirst has a host that ran one of the latest ticks wait for some milliseconds, the
	// longer the more recently it ran, so that the hosts whose turn it is ask first. It evens out
	// the runs where clocks agree within milliseconds; it promises nothing. Default false: whoever
	// asks first gets the tick, often the same host, whose clock is a little ahead.
	LeastRecentFirst bool

	// OnStoreDown decides what happens while the store does not answer. A store that answers that
	// it is not set up right, or that something is wrong at a key of this timer (dlock.ErrSetup,
	// dlock.ErrFault), is none that does not answer: then ticks are skipped. Default
	// StoreDownRunLocal.
	OnStoreDown StoreDownPolicy

	// AlarmAfter is how many ticks may come due without a successful run on any host before
	// TimersSucceed complains. At least 1, or NoLimit: never. Ticks in a blackout do not count, nor
	// do those whose run, or the runs that held the slots, are within MaxRunTime. A store that does
	// not tell of successes elsewhere (database locks) lets a host complain of its own runs only.
	// Default 5.
	AlarmAfter int

	// Retry says whether and when Run is called again, within the same run, after it failed.
	// Default: it is not.
	Retry Retry

	// LocalOnly keeps this timer away from the store: its limits hold on each host by itself.
	// Default false.
	LocalOnly bool

	// Run does the work. Its context ends when the lease of its slot is lost, after MaxRunTime, or
	// when draining takes too long; it does not end with the context of Scheduler.Run. An error or
	// a panic is logged and counted, Retry permitting tried again, and the next tick comes as
	// usual.
	Run func(ctx context.Context) error
}

// A CatchUp says what is done about ticks that came due while this host, or the whole fleet, was
// not there.
type CatchUp struct {
	// Policy says which of them run. Default CatchUpOnce for calendars (Cron, Daily, At),
	// CatchUpSkip for all other schedules.
	Policy CatchUpPolicy

	// Window is how old a missed tick may be that CatchUpOnce still runs. NoLimit: however old.
	// Default 1 h.
	Window time.Duration
}

// A Delay moves the start of a tick, not the tick: that stays the same instant on every host. The
// parts add up.
type Delay struct {
	// ByTimer delays all ticks of the timer by a fixed part of this, which follows from its name,
	// so that timers with the same schedule do not all start at once. At most 24 h. Default 0:
	// none.
	ByTimer time.Duration

	// ByHost is the same, but the part follows from the name of the host, too: hosts that all run
	// every tick (MaxPerTick NoLimit, which it needs) do not start at once. At most 24 h. Default
	// 0: none.
	ByHost time.Duration

	// Jitter delays every tick by a random part, up to this share, of the time to the next one; the
	// same on every host, so that it stays one tick. 0 to 0.5. Default 0: none.
	Jitter float64
}

// A StoreDownPolicy is what a timer does while the store does not answer.
type StoreDownPolicy uint8

const (
	// StoreDownRunLocal goes on without the store: ticks start up to MaxPerHost runs on each host,
	// and a run whose lease can no longer be trusted because the store is silent goes on. Such runs
	// are degraded and not Valid. At most hosts × MaxPerHost runs go on at once. A store that
	// restarted and is in quarantine answers: that is no outage. Neither is one that says what is
	// wrong with it: it says so to every host, and all of them would run every tick, for as long as
	// nobody looks.
	StoreDownRunLocal StoreDownPolicy = iota
	// StoreDownSkip starts nothing, and ends a run when its lease can no longer be trusted. The
	// limit holds.
	StoreDownSkip
)

func (p StoreDownPolicy) String() string {
	switch p {
	case StoreDownRunLocal:
		return "run_local"
	case StoreDownSkip:
		return "skip"
	default:
		return "unknown"
	}
}

// withDefaults fills in what is not set, and puts unlimited for NoLimit. The fields must have been
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
		t.AlarmAfter = DefaultAlarmAfter
	}
	if t.CatchUp.Policy == CatchUpDefault {
		t.CatchUp.Policy = CatchUpSkip
		if t.Schedule != nil && schedule.IsCalendar(t.Schedule) {
			t.CatchUp.Policy = CatchUpOnce
		}
	}
	if t.CatchUp.Window == 0 {
		t.CatchUp.Window = DefaultCatchUpWindow
	}
	if t.MaxRunTime == 0 {
		t.MaxRunTime = DefaultMaxRunTime
	}
	t.Retry = t.Retry.withDefaults()
	t.Schedule = schedule.ForName(t.Schedule, t.Name)
	return t
}

// lockName is the timer's name in the store; its slots are timer:<name>:slot:<i>.
func (t Timer) lockName() string { return "timer:" + t.Name }
