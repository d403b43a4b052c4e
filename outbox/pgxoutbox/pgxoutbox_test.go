package pgxoutbox_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/pgxoutbox"
)

// If the pool is nil or the options are invalid, every method returns an error that says what is
// wrong. Nothing panics, NewRelay refuses such an Outbox, and the Outbox can be closed.
//
// Fails when the faults of New are dropped, or when a nil pointer is dereferenced.
func TestFaultsOfNewAreErrors(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		box  *outbox.Outbox
		says string
	}{
		"no pool":   {pgxoutbox.New(nil, outbox.Options{}), "pass a *pgxpool.Pool"},
		"long name": {pgxoutbox.New(nil, outbox.Options{TableName: strings.Repeat("x", 41)}), "40 bytes"},
	} {
		message := outbox.Message{ID: outbox.RandomID(), Topic: "t"}
		_, appended := c.box.Append(t.Context(), pgxoutbox.Tx(nil), message)
		for call, err := range map[string]error{"Migrate": c.box.Migrate(t.Context()),
			"Verify": c.box.Verify(t.Context()), "Append": appended} {
			if !errors.Is(err, dlock.ErrSetup) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %s: %v, want dlock.ErrSetup, and %q", what, call, err, c.says)
			}
		}
		if _, err := outbox.NewRelay(c.box, outbox.RelayConfig{}); err == nil {
			t.Errorf("%s: NewRelay returned a relay", what)
		}
		c.box.Notify()
		if err := c.box.Close(); err != nil {
			t.Errorf("%s: Close: %v", what, err)
		}
	}
}
