package commands

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestLastLook ends a check slightly before the wait ends, as a SQLite file does. The run is then
// not known to have ended, which is no fault of the store. Long before the end it is one.
func TestLastLook(t *testing.T) {
	w := &waiter{}
	givesUp := func(context.Context) (string, bool, error) { return "", false, context.DeadlineExceeded }
	for _, c := range []struct {
		left time.Duration
		want error
	}{
		{callTimeout / 2, errNotEnded},
		{2 * callTimeout, context.DeadlineExceeded},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), c.left)
		_, _, err := w.once(ctx, givesUp)
		cancel()
		if !errors.Is(err, c.want) {
			t.Errorf("with %v left: %v, want %v", c.left, err, c.want)
		}
	}
}
