package durable

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/schedule"
)

const (
	// MaxNameLen is the maximum length in bytes of the name of a handler, a schedule or a worker.
	MaxNameLen = 200

	maxRuns     = 10_000
	maxAttempts = 1_000 // also the maximum of MaxCrashes
	maxBackfill = 10_000
	minTTL      = time.Second
	maxTTL      = 24 * time.Hour
	minInterval = time.Millisecond
	maxInterval = 24 * time.Hour
	maxJitter   = 0.9
	maxWait     = 24 * time.Hour
	// minUnseen is the minimum of Retention.Unseen. It leaves a worker that cannot reach the
	// database time to register again.
	minUnseen = 10 * registerInterval
	// firstYear and lastYear bound times, because not every database can store other years.
	firstYear, lastYear = 1970, 9999
)

var errNoStore = fmt.Errorf("%w: there is no store: use pgxdurable.New or durable.SQLite", dlock.ErrSetup)

func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = dlock.NewHolder().String()
	}
	orDefault(&c.MaxRuns, DefaultMaxRuns)
	orDefault(&c.ClaimBatch, c.MaxRuns)
	orDefault(&c.TTL, defaultTTL)
	orDefault(&c.PollInterval, defaultPollInterval)
	orDefault(&c.PollJitter, DefaultPollJitter)
	if c.PollJitter == NoJitter {
		c.PollJitter = 0
	}
	orDefault(&c.MaterializeInterval, c.PollInterval)
	orDefault(&c.ClaimInterval, c.PollInterval)
	orDefault(&c.ReclaimInterval, c.PollInterval)
	orDefault(&c.SweepInterval, defaultSweepInterval)
	orDefault(&c.CallTimeout, min(defaultCallTimeout, c.TTL/3))
	orDefault(&c.DrainTimeout, defaultDrainTimeout)
	orDefault(&c.Retention.Succeeded, 7*day)
	orDefault(&c.Retention.Dead, 90*day)
	orDefault(&c.Retention.Canceled, 7*day)
	orDefault(&c.Retention.Unseen, 30*day)
	orDefault(&c.MaxDueAge, defaultMaxDueAge)
	orDefault(&c.MaxCrashes, defaultMaxCrashes)
	return c
}

const day = 24 * time.Hour

func orDefault[T comparable](field *T, value T) {
	if *field == *new(T) {
		*field = value
	}
}

// check returns every fault of a Config whose defaults are filled in.
func (c Config) check() []error {
	var errs []error
	fault := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("durable: Config.%s: "+format, append([]any{field}, args...)...))
	}
	checkText(c.Name, "Name", fault)
	if c.MaxRuns < 1 || c.MaxRuns > maxRuns {
		fault("MaxRuns", "%d: use 1 to %d", c.MaxRuns, maxRuns)
	}
	if c.MaxActive < 0 || c.MaxActive > maxActive {
		fault("MaxActive", "%d: use 1 to %d, or 0 for any number", c.MaxActive, maxActive)
	}
	if c.ClaimBatch < 1 || c.ClaimBatch > maxRuns {
		fault("ClaimBatch", "%d: use 1 to %d", c.ClaimBatch, maxRuns)
	}
	if !(c.PollJitter >= 0 && c.PollJitter <= maxJitter) { // written so that NaN is a fault, too
		fault("PollJitter", "%v: use 0 to %v, or NoJitter", c.PollJitter, maxJitter)
	}
	for _, d := range []struct {
		field       string
		value       time.Duration
		least, most time.Duration
	}{
		{"TTL", c.TTL, minTTL, maxTTL},
		{"PollInterval", c.PollInterval, minInterval, maxInterval},
		{"MaterializeInterval", c.MaterializeInterval, minInterval, maxInterval},
		{"ClaimInterval", c.ClaimInterval, minInterval, maxInterval},
		{"ReclaimInterval", c.ReclaimInterval, minInterval, maxInterval},
		{"SweepInterval", c.SweepInterval, minInterval, maxInterval},
		{"CallTimeout", c.CallTimeout, time.Millisecond, maxTTL / 3},
		{"PreStopDelay", c.PreStopDelay, 0, maxInterval},
		{"DrainTimeout", c.DrainTimeout, time.Millisecond, 365 * day},
		{"MaxDueAge", c.MaxDueAge, time.Millisecond, 365 * day},
	} {
		if (d.value < d.least || d.value > d.most) && !(d.field == "MaxDueAge" && d.value == NoLimit) {
			fault(d.field, "%v: use %v to %v", d.value, d.least, d.most)
		}
	}
	if c.CallTimeout <= maxTTL/3 && c.TTL <= maxTTL && c.TTL/3 < c.CallTimeout {
		fault("TTL", "%v is less than three times CallTimeout (%v), so that no renewal could fail and be repeated "+
			"before the lease ends: use %v or more, or a shorter CallTimeout", c.TTL, c.CallTimeout, 3*c.CallTimeout)
	}
	for _, keep := range []struct {
		field string
		value time.Duration
	}{
		{"Succeeded", c.Retention.Succeeded}, {"Dead", c.Retention.Dead}, {"Canceled", c.Retention.Canceled},
	} {
		if keep.value < time.Minute && keep.value != NoLimit {
			fault("Retention."+keep.field, "%v: use a minute or more, or NoLimit", keep.value)
		}
	}
	if unseen := c.Retention.Unseen; unseen < minUnseen && unseen != NoLimit {
		fault("Retention.Unseen", "%v: a worker registers only about every %v, so rows that live workers "+
			"use would be deleted, with their ticks: use %v or more, or NoLimit", unseen, registerInterval, minUnseen)
	}
	if (c.MaxCrashes < 1 || c.MaxCrashes > maxAttempts) && c.MaxCrashes != NoLimit {
		fault("MaxCrashes", "%d: use 1 to %d, or NoLimit", c.MaxCrashes, maxAttempts)
	}
	if c.MaxDead < 0 {
		fault("MaxDead", "%d is negative: use a positive number, or 0 for any number", c.MaxDead)
	}
	for i, m := range c.Middleware {
		if m == nil {
			fault(fmt.Sprintf("Middleware[%d]", i), "it is nil: remove it")
		}
	}
	return errs
}

// checkText reports what is wrong with a name or a key.
func checkText(text, field string, fault func(field, format string, args ...any)) {
	switch {
	case text == "":
		fault(field, "it is empty")
	case len(text) > MaxNameLen:
		fault(field, "it is %d bytes long: use at most %d", len(text), MaxNameLen)
	case !utf8.ValidString(text):
		fault(field, "%q is not valid UTF-8: use text", text)
	default:
		for _, r := range text {
			if unicode.IsControl(r) {
				fault(field, "%q has a control character: remove it", text)
				return
			}
		}
	}
}

func checkPayload(payload []byte, fault func(field, format string, args ...any)) {
	if len(payload) > MaxPayloadLen {
		fault("payload", "%w: %d bytes, at most %d: store it in a table or a file, and pass its name here",
			ErrPayloadTooLong, len(payload), MaxPayloadLen)
	}
}

func checkAttempts(n int, fault func(field, format string, args ...any)) {
	if n < 0 || n > maxAttempts {
		fault("MaxAttempts", "%d: use 1 to %d, or 0 for the default", n, maxAttempts)
	}
}

func checkPriority(p Priority, fault func(field, format string, args ...any)) {
	if p < PriorityHigh || p > PriorityLow {
		fault("Priority", "%d: use PriorityHigh, PriorityNormal or PriorityLow", p)
	}
}

func (h HandlerOptions) withDefaults() HandlerOptions {
	orDefault(&h.MaxRunTime, defaultMaxRunTime)
	orDefault(&h.Retry.MaxElapsedTime, defaultMaxElapsedTime)
	if h.Retry.FirstWait == 0 {
		h.Retry.FirstWait = defaultFirstWait
		if h.Retry.MaxWait > 0 {
			h.Retry.FirstWait = min(h.Retry.FirstWait, h.Retry.MaxWait)
		}
	}
	orDefault(&h.Retry.MaxWait, max(defaultMaxWait, h.Retry.FirstWait))
	return h
}

// check returns every fault of options whose defaults are filled in.
func (h HandlerOptions) check(fault func(field, format string, args ...any)) {
	if h.MaxConcurrency < 0 || h.MaxConcurrency > maxRuns { // a larger limit does not fit the column
		fault("MaxConcurrency", "%d: use 1 to %d, or 0 for any number", h.MaxConcurrency, maxRuns)
	}
	if h.MaxPerPartition < 0 || h.MaxPerPartition > maxRuns {
		fault("MaxPerPartition", "%d: use 1 to %d, or 0 for any number", h.MaxPerPartition, maxRuns)
	}
	if (h.Rate != 0 || h.Per != 0) && (h.Rate < 1 || h.Rate > driver.MaxRate) {
		fault("Rate", "%d: use 1 to %d, or 0 and no Per", h.Rate, driver.MaxRate)
	}
	if (h.Rate != 0 || h.Per != 0) && (h.Per < driver.MinPer || h.Per > driver.MaxPer) {
		fault("Per", "%v: use %v to %v, or 0 and no Rate", h.Per, driver.MinPer, driver.MaxPer)
	}
	if h.MaxRunTime < time.Millisecond && h.MaxRunTime != NoLimit {
		fault("MaxRunTime", "%v: use a millisecond or more, or NoLimit", h.MaxRunTime)
	}
	checkAttempts(h.Retry.MaxAttempts, func(field, format string, args ...any) {
		fault("Retry."+field, format, args...)
	})
	if h.Retry.MaxElapsedTime < time.Millisecond && h.Retry.MaxElapsedTime != NoLimit {
		fault("Retry.MaxElapsedTime", "%v: use a millisecond or more, or NoLimit", h.Retry.MaxElapsedTime)
	}
	for _, wait := range []struct {
		field string
		value time.Duration
	}{{"Retry.FirstWait", h.Retry.FirstWait}, {"Retry.MaxWait", h.Retry.MaxWait}} {
		if wait.value < time.Millisecond || wait.value > maxWait {
			fault(wait.field, "%v: use %v to %v", wait.value, time.Millisecond, maxWait)
		}
	}
	if h.Retry.MaxWait < h.Retry.FirstWait {
		fault("Retry.MaxWait", "%v is less than FirstWait (%v): raise it, or lower FirstWait", h.Retry.MaxWait,
			h.Retry.FirstWait)
	}
}

// checkSchedule returns every fault of a schedule. It calls user code.
func checkSchedule(s schedule.Schedule, o ScheduleOptions, fault func(field, format string, args ...any)) {
	if _, fixed := s.(schedule.FixedDelay); fixed {
		fault("Schedule", "schedule.After has no ticks that a database could store: use schedule.Every, or a timer")
		return
	}
	faults := schedule.Check(s)
	for _, err := range faults {
		fault("Schedule", "%w", err)
	}
	if len(faults) == 0 {
		if err := schedule.CheckShared(s); err != nil {
			fault("Schedule", "%w", err)
		}
		// Not every database can store invalid UTF-8 or NUL, and a database must return exactly the
		// text that was stored.
		for _, text := range []string{schedule.Identity(s), schedule.Describe(s)} {
			if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
				fault("Schedule", "its String %q is not valid UTF-8, or has a NUL: use text", text)
				break
			}
		}
	}
	if o.CatchUp.Policy > CatchUpSkip {
		fault("CatchUp.Policy", "%d is not a policy: use CatchUpOnce, CatchUpBackfill or CatchUpSkip",
			o.CatchUp.Policy)
	}
	if o.CatchUp.Max < 0 || o.CatchUp.Max > maxBackfill {
		fault("CatchUp.Max", "%d: use 1 to %d, or 0 for the default", o.CatchUp.Max, maxBackfill)
	}
	if o.CatchUp.Max != 0 && o.CatchUp.Policy != CatchUpBackfill {
		fault("CatchUp.Max", "%d does nothing without CatchUpBackfill: remove it, or set that Policy", o.CatchUp.Max)
	}
	if o.CatchUp.Window < 0 && o.CatchUp.Window != NoLimit {
		fault("CatchUp.Window", "%v is negative: use a positive duration, or 0 for any age", o.CatchUp.Window)
	}
	checkPayload(o.Payload, fault)
	checkPriority(o.Priority, fault)
}
