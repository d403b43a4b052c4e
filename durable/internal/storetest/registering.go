package storetest

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
)

// daily is the schedule of most tests.
var daily = store.Schedule{Name: "daily", Handler: "orders", Spec: "1", Text: "daily at 07:00"}

var registering = []promise{
	{"registering/new handlers and schedules get rows", func(c *check) {
		from := c.now()
		c.register(false, []store.Handler{orders, {Name: "mails", MaxConcurrency: 3}}, daily)
		h := c.handler("mails")
		if h.MaxConcurrency != 3 || h.Override != -1 || h.Pause != nil || h.Queued+h.Running+h.Dead != 0 {
			c.Errorf("%+v", h)
		}
		c.near("SeenAt", h.SeenAt, from)
		row := c.schedule("daily")
		c.near("SeenAt", row.SeenAt, from)
		row.SeenAt = time.Time{}
		want := store.ScheduleRow{Name: "daily", Handler: "orders", Spec: "1", Text: "daily at 07:00"}
		if row != want {
			c.Errorf("%+v, want %+v", row, want)
		}
		if d := c.dueSchedule("daily"); d != (store.DueSchedule{Name: "daily", Spec: "1"}) {
			c.Errorf("Due of a new schedule: %+v", d)
		}
	}},
	{"registering/repeated, it marks as seen and changes nothing else", func(c *check) {
		at := c.now().Add(time.Hour)
		c.planned(daily, at)
		c.setHandler("orders", store.Override{MaxConcurrency: ptr(7)})
		c.setSchedule("daily", store.Override{PausedUntil: ptr(time.Hour)})
		was, wasHandler := c.schedule("daily"), c.handler("orders")
		c.pass(was.SeenAt)
		c.pass(wasHandler.SeenAt)
		for _, takeOver := range []bool{false, true} {
			c.register(takeOver, []store.Handler{orders}, daily)
		}
		row, handler := c.schedule("daily"), c.handler("orders")
		if !row.SeenAt.After(was.SeenAt) || !handler.SeenAt.After(wasHandler.SeenAt) {
			c.Error("the schedules are not marked as seen again")
		}
		if row.Spec != "1" || !row.NextDueAt.Equal(at) || row.Pause == nil || handler.Override != 7 {
			c.Errorf("%+v, %+v", row, handler)
		}
	}},
	{"registering/a schedule written while the clock was ahead is planned again", func(c *check) {
		at := c.now().Add(2 * time.Hour)
		c.planned(daily, at)
		other := store.Schedule{Name: "other", Handler: "orders", Spec: "1", Text: "daily at 07:00"}
		c.planned(other, at)
		c.setSchedule("daily", store.Override{PausedUntil: ptr(time.Hour)})
		c.setSchedule("other", store.Override{PausedUntil: ptr(3 * time.Hour)})
		c.h.SeenAhead(c, c.Store, 2*time.Hour)
		from := c.now()
		c.register(false, nil, daily, other)
		if d := c.dueSchedule("daily"); d.NextSpec == d.Spec {
			c.Errorf("%+v is not planned again", d)
		}
		row := c.schedule("daily")
		c.near("SeenAt", row.SeenAt, from)
		if row.Pause != nil || c.schedule("other").Pause == nil {
			c.Errorf("a pause that had ended by then: %+v; one that had not: %+v", row.Pause, c.schedule("other").Pause)
		}
	}},
	{"registering/takes over a schedule with another Spec only if takeOver is set", func(c *check) {
		at := c.now().Add(time.Hour)
		c.planned(daily, at)
		was := c.schedule("daily")
		c.pass(was.SeenAt)
		changed := store.Schedule{Name: "daily", Handler: "mails", Spec: "2", Text: "daily at 08:00"}
		c.register(false, nil, changed)
		if row := c.schedule("daily"); row != was {
			c.Errorf("%+v, want it unchanged: %+v", row, was)
		}
		if d := c.due(); len(d.Schedules) != 0 {
			c.Errorf("the schedule is due: %+v", d)
		}
		c.register(true, nil, changed)
		row := c.schedule("daily")
		if row.Spec != "2" || row.Handler != "mails" || row.Text != "daily at 08:00" || !row.NextDueAt.Equal(at) {
			c.Errorf("%+v", row)
		}
		d := c.dueSchedule("daily")
		if d.Spec != "2" || d.NextSpec != "1" || !d.NextDueAt.Equal(at) {
			c.Errorf("%+v", d)
		}
		c.materialize(store.Plan{Schedule: d, Handler: "mails", Next: at.Add(time.Minute)})
		if d := c.due(); len(d.Schedules) != 0 || !d.Next.Equal(at.Add(time.Minute)) {
			c.Errorf("after a plan: %+v", d)
		}
	}},
	{"registering/does not change other handlers and schedules", func(c *check) {
		c.register(true, []store.Handler{orders}, daily)
		was, wasHandler := c.schedule("daily"), c.handler("orders")
		c.pass(was.SeenAt)
		c.register(true, []store.Handler{{Name: "mails"}}, store.Schedule{Name: "hourly", Spec: "h"})
		row, handler := c.schedule("daily"), c.handler("orders")
		if row != was || !reflect.DeepEqual(handler, wasHandler) {
			c.Errorf("%+v, %+v", row, handler)
		}
	}},
	{"registering/the limit of the latest registration is shown", func(c *check) {
		for _, limit := range []int{3, 5, 0} {
			c.ready(store.Handler{Name: "orders", MaxConcurrency: limit})
			if h := c.handler("orders"); h.MaxConcurrency != limit {
				c.Errorf("%+v, want %d", h, limit)
			}
		}
	}},
	{"registering/by many workers at once", func(c *check) {
		var handlers []store.Handler
		var schedules []store.Schedule
		for i := range 20 {
			handlers = append(handlers, store.Handler{Name: fmt.Sprint("handler", i)})
			schedules = append(schedules, store.Schedule{Name: fmt.Sprint("schedule", i), Spec: "1"})
		}
		c.atOnce(8, func(i int, c *check) {
			own, ownSchedules := slices.Concat(handlers[i:], handlers[:i]), slices.Concat(schedules[i:], schedules[:i])
			c.register(i%2 == 0, own, ownSchedules...)
		})
		if d := c.due(); len(d.Schedules) != len(schedules) {
			c.Errorf("%d schedules", len(d.Schedules))
		}
	}},
}

// planned registers a schedule and plans its next tick.
func (c *check) planned(s store.Schedule, next time.Time) {
	c.Helper()
	c.register(true, []store.Handler{{Name: s.Handler, MaxAttempts: 3}}, s)
	done := c.materialize(store.Plan{Schedule: c.dueSchedule(s.Name), Handler: s.Handler, Next: next})
	if len(done) != 1 || done[0] != (store.Materialized{Schedule: s.Name}) {
		c.Fatalf("the first plan of a schedule: %+v", done)
	}
}
