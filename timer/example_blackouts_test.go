package timer_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer"
)

// In a blackout the schedule starts no run, but a run can still be triggered.
func ExampleTimer_blackouts() {
	now := time.Now()
	runs := make(chan bool, 1)
	timers, err := timer.New(
		// A database migration is in progress.
		timer.Config{Blackouts: []schedule.Blackout{schedule.Between(now.Add(-time.Hour), now.Add(time.Hour))}},
		timer.Timer{
			Name:      "send-reminders",
			Schedule:  schedule.Every(10 * time.Millisecond),
			Blackouts: []schedule.Blackout{schedule.DailyWindow("22:00", "06:00", "Europe/Berlin")}, // users are asleep
			Run: func(ctx context.Context) error {
				run, _ := timer.RunFromContext(ctx)
				runs <- run.Tick().IsZero()
				return nil
			},
		},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	stop := start(timers)
	defer stop()

	var reminders timer.TimerStatus
	for reminders.Skipped[timer.ReasonBlackout] < 3 {
		time.Sleep(time.Millisecond)
		reminders, _ = timers.Status().Timer("send-reminders")
	}
	fmt.Println("started:", reminders.Started)
	_, err = timers.Trigger(context.Background(), "send-reminders", timer.TriggerOptions{})
	fmt.Println("trigger:", err)
	fmt.Println("triggered:", <-runs)
	// Output:
	// started: 0
	// trigger: <nil>
	// triggered: true
}
