package pgxdurable_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/durable/pgxdurable"
)

// If the pool is nil or the options are invalid, every method returns an error that says what is
// wrong. If the transaction is nil, Trigger does. Nothing panics, and NewWorker refuses such a
// store.
//
// Fails when the faults of New are dropped, or when a nil pointer is dereferenced.
func TestFaultsOfNewAreErrors(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		store *durable.Store
		says  string
	}{
		"no pool":   {pgxdurable.New(nil, durable.Options{}), "pass a *pgxpool.Pool"},
		"long name": {pgxdurable.New(nil, durable.Options{TableName: strings.Repeat("x", 41)}), "40 bytes"},
	} {
		_, triggered := c.store.Trigger(t.Context(), pgxdurable.Tx(nil), "h", nil, durable.TriggerOptions{})
		for call, err := range map[string]error{"Migrate": c.store.Migrate(t.Context()),
			"Verify": c.store.Verify(t.Context()), "Trigger": triggered} {
			if !errors.Is(err, dlock.ErrSetup) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %s: %v, want dlock.ErrSetup, and %q", what, call, err, c.says)
			}
		}
		if _, err := durable.NewWorker(c.store, durable.Config{}); err == nil {
			t.Errorf("%s: NewWorker returned a worker", what)
		}
	}
}
