package durable

import (
	"maps"
	"slices"
	"time"
)

// A Status is a snapshot of a Worker, taken from memory without a call to the database. It can be
// marshaled as JSON.
type Status struct {
	Name     string         `json:"name"`
	Phase    Phase          `json:"phase"`
	Database DatabaseStatus `json:"database"`
	MaxRuns  int            `json:"max_runs"`
	// Places is the number of attempts whose handlers are running or whose results are not written
	// yet.
	Places        int              `json:"places"`
	Handlers      []HandlerStatus  `json:"handlers"`  // by name
	Schedules     []ScheduleStatus `json:"schedules"` // by name
	Running       []RunInfo        `json:"running"`   // by start
	DroppedEvents uint64           `json:"dropped_events"`
}

// DatabaseStatus is the state of the database as seen by the latest calls.
type DatabaseStatus struct {
	Name      string    `json:"name"`                // postgres or sqlite
	Up        bool      `json:"up"`                  // also false before the first call
	ChangedAt time.Time `json:"changed_at,omitzero"` // when it went down or came back; zero if it was never down
	Err       string    `json:"err,omitempty"`       // error of the last call; "" if it succeeded
}

// HandlerStatus is a handler of this worker, with the outcomes of its attempts on this worker.
type HandlerStatus struct {
	Name            string             `json:"name"`
	MaxConcurrency  int                `json:"max_concurrency"`             // 0: any number
	MaxPerPartition int                `json:"max_per_partition,omitempty"` // 0: any number
	Rate            int                `json:"rate,omitempty"`              // starts within any Per; 0: any number
	Per             time.Duration      `json:"per_ns,omitempty"`
	MaxAttempts     int                `json:"max_attempts"`
	Attempts        map[Outcome]uint64 `json:"attempts"`
	Discarded       uint64             `json:"discarded"`   // results that did not count
	LeasesLost      uint64             `json:"leases_lost"` // leases lost while the handler was running
}

// ScheduleStatus is a schedule of this worker, with the ticks that this worker has accounted for.
type ScheduleStatus struct {
	Name    string `json:"name"`
	Handler string `json:"handler"`
	Text    string `json:"text"`
	TickCounts
	Fault string `json:"fault,omitempty"` // why its ticks wait; "" if they do not
}

// Status returns a snapshot.
func (w *Worker) Status() Status {
	p := w.life.Phase()
	s := Status{Name: w.config.Name, Phase: p, MaxRuns: w.config.MaxRuns,
		Places: w.config.MaxRuns - w.book.room(), DroppedEvents: w.events.Dropped(),
		Handlers: []HandlerStatus{}, Schedules: []ScheduleStatus{}, Running: []RunInfo{}}
	s.Database.Name = w.database.Name()
	var err error
	s.Database.Up, s.Database.ChangedAt, err = w.database.Status()
	s.Database.Err = textOf(err)
	handlers, schedules := w.parts()
	for _, name := range slices.Sorted(maps.Keys(handlers)) {
		h := handlers[name]
		attempts, discarded, losses := h.counts.read()
		s.Handlers = append(s.Handlers, HandlerStatus{Name: name, MaxConcurrency: h.options.MaxConcurrency,
			MaxPerPartition: h.options.MaxPerPartition, Rate: h.options.Rate, Per: h.options.Per,
			MaxAttempts: h.options.Retry.MaxAttempts, Attempts: attempts, Discarded: discarded, LeasesLost: losses})
	}
	faults := w.materializer.faulty()
	for _, name := range slices.Sorted(maps.Keys(schedules)) {
		c := schedules[name]
		s.Schedules = append(s.Schedules, ScheduleStatus{Name: name, Handler: c.handler, Text: c.text,
			TickCounts: c.ticks.read(), Fault: faults[name]})
	}
	for _, a := range w.book.list() {
		s.Running = append(s.Running, a.info())
	}
	return s
}
