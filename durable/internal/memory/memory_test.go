package memory_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tickslot/tickslot/durable/internal/memory"
	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/durable/internal/storetest"
)

// The in-memory store passes the same tests as the databases.
func TestMemory(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Harness{
		Virtual: true,
		New: func(testing.TB) func() store.Store {
			s := memory.New()
			return func() store.Store { return s }
		},
		SeenAhead: func(t testing.TB, s store.Store, by time.Duration) {
			s.(*memory.Store).AdvanceClock(by)
			rows, err := s.Schedules(t.Context())
			for _, r := range rows {
				again := store.Schedule{Name: r.Name, Handler: r.Handler, Spec: r.Spec, Text: r.Text}
				err = errors.Join(err, s.Register(t.Context(), "w", nil, []store.Schedule{again}, false))
			}
			if err != nil {
				t.Fatal(err)
			}
			s.(*memory.Store).AdvanceClock(-by)
		},
	})
}
