package top

import (
	"fmt"
	"time"

	"github.com/tickslot/tickslot/cmd/tickslot/internal/fleet"
	"github.com/tickslot/tickslot/cmd/tickslot/internal/show"
)

func handlerLevel(h Handler) level {
	switch {
	case h.Dead > 0:
		return levelUrgent
	case h.Paused != "":
		return levelWarn
	case h.Running+h.Queued > 0:
		return levelBusy
	}
	return levelQuiet
}

func (m *model) handlerTable() (t *show.Table, levels []level, heading string) {
	t = &show.Table{Columns: []string{"HANDLER", "STATE", "QUEUED", "RUNNING", "DEAD", "LIMIT", "SEEN"}}
	var queued, running, dead int64
	for _, h := range m.handlers {
		state := "active"
		if h.Paused != "" {
			state = "paused"
		}
		queued, running, dead = queued+h.Queued, running+h.Running, dead+h.Dead
		t.Add(h.Name, state, fmt.Sprint(h.Queued), fmt.Sprint(h.Running), fmt.Sprint(h.Dead),
			h.Limit, m.ago(h.SeenAt))
		levels = append(levels, handlerLevel(h))
	}
	return t, levels, fmt.Sprintf("DURABLE HANDLERS: runs %d queued, %d running, %d dead", queued, running, dead) +
		m.workAge(m.work.DurableAt, m.work.DurableErr)
}

func messageLevel(r Message) level {
	switch {
	case r.Dead:
		return levelUrgent
	case r.LastError != "":
		return levelWarn
	}
	return levelBusy
}

func (m *model) messageTable() (t *show.Table, levels []level, heading string) {
	t = &show.Table{Columns: []string{"TOPIC", "STATE", "ATTEMPTS", "AGE", "KEY", "LAST ERROR", "ID"}}
	for _, r := range m.messages {
		state := "pending"
		switch {
		case r.Dead:
			state = "dead"
		case r.LastError != "":
			state = "failed, pending"
		}
		t.Add(r.Topic, state, fmt.Sprint(r.Attempts), m.ago(r.CreatedAt), r.Key, r.LastError, r.ID)
		levels = append(levels, messageLevel(r))
	}
	heading = fmt.Sprintf("OUTBOX MESSAGES: %d pending, %d dead", m.work.Pending, m.work.Dead)
	if age := m.work.DueAge.Truncate(time.Second); age > 0 {
		heading += ", one is due for " + show.Span(age)
	}
	return t, levels, heading + m.workAge(m.work.OutboxAt, m.work.OutboxErr)
}

// workAge says that a list is outdated, and why. It returns "" if the list is current.
func (m *model) workAge(read time.Time, fault string) string {
	age := m.now.Sub(read)
	if fault == "" && age < slowRead+m.Interval {
		return ""
	}
	if fault == "" {
		fault = "no answer"
	}
	return fmt.Sprintf(", THIS IS %s OLD: %s", show.Span(max(0, age).Truncate(time.Second)), fault)
}

// workNotices returns the notices about durable runs and the outbox.
func (m *model) workNotices() (list []fleet.Notice) {
	add := func(urgent bool, format string, args ...any) {
		list = append(list, fleet.Notice{Urgent: urgent, Text: fmt.Sprintf(format, args...)})
	}
	for _, h := range m.work.Handlers {
		if h.Dead > 0 {
			add(true, "durable handler %s has %s dead: \"tickslot dead ls\" says why", h.Name, count(h.Dead, "run"))
		}
		if h.Paused != "" {
			add(false, "durable handler %s is %s", h.Name, h.Paused)
		}
	}
	if n := m.work.Dead; n > 0 {
		add(true, "%s of the outbox: \"tickslot dead ls\" says why", count(n, "dead message"))
	}
	if m.work.DurableAt.IsZero() && m.work.DurableErr != "" {
		add(true, "durable runs cannot be read: %s", m.work.DurableErr)
	}
	if m.work.OutboxAt.IsZero() && m.work.OutboxErr != "" {
		add(true, "the outbox cannot be read: %s", m.work.OutboxErr)
	}
	return list
}

func count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
