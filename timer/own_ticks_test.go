package timer_test

import (
	"strings"
	"testing"
	"time"

	"github.com/netresearch/go-cron"

	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// A schedule whose ticks depend on when a host calls it, such as an interval from now on, is
// refused where hosts have to agree on a tick, because each host would run its own ticks. It is
// allowed where each host runs independently.
//
// Fails when schedule.CheckShared calls such a schedule only once.
func TestSchedulesThatDifferFromHostToHostAreRefused(t *testing.T) {
	t.Parallel()
	fromNow := scheduleFunc(func(at time.Time) time.Time { return at.Add(time.Minute) }) // as in River
	// This schedule is due on full seconds, like robfig/cron's @every.
	everyTwo := cron.Every(2 * time.Second)
	twice := scheduleFunc(func(at time.Time) time.Time { return at.Truncate(time.Minute).Add(time.Minute) })
	nightly, err := cron.ParseStandard("0 2 * * *")
	if err != nil {
		t.Fatal(err)
	}
	// The ticks are closer together than the precision of a tick.
	tiny := scheduleFunc(func(at time.Time) time.Time { return at.Truncate(300).Add(300) })
	store := timer.Config{Store: memlock.New()}
	for name, c := range map[string]struct {
		config  timer.Config
		timer   timer.Timer
		refused bool
	}{
		"from now on":     {store, timer.Timer{Schedule: fromNow}, true},
		"robfig's @every": {store, timer.Timer{Schedule: everyTwo}, true},
		"inside of Except": {store, timer.Timer{Schedule: schedule.Except(fromNow,
			schedule.Dates("", "2001-01-01"))}, true},
		"with several starts a tick": {store, timer.Timer{Schedule: fromNow, MaxConcurrency: 3, MaxPerTick: 3}, true},
		"no claims":                  {store, timer.Timer{Schedule: fromNow, MaxPerTick: timer.NoLimit}, false},
		"no limits": {store, timer.Timer{Schedule: fromNow, MaxConcurrency: timer.NoLimit,
			MaxPerTick: timer.NoLimit}, false},
		"local":                {store, timer.Timer{Schedule: fromNow, LocalOnly: true}, false},
		"one process":          {timer.Config{}, timer.Timer{Schedule: everyTwo}, false},
		"the same everywhere":  {store, timer.Timer{Schedule: twice}, false},
		"robfig's expressions": {store, timer.Timer{Schedule: nightly}, false},
		"very often":           {store, timer.Timer{Schedule: tiny}, false},
		"a grid":               {store, timer.Timer{Schedule: schedule.Every(time.Minute)}, false},
		// No check can detect this.
		"a grid from now on": {store, timer.Timer{Schedule: schedule.Every(time.Minute).From(time.Now())},
			false},
	} {
		c.timer.Name, c.timer.Run = "a", nop
		_, err := timer.New(c.config, c.timer)
		if (err != nil) != c.refused || err != nil && !strings.Contains(err.Error(),
			"every host would have ticks of its own") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
