package sqlkit

import (
	"context"
	"time"
)

// Repeat makes a call and repeats it while it conflicts with another transaction, until ctx ends.
func Repeat(ctx context.Context, call func() error) error {
	for {
		err := call()
		if !Conflicts(err) || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Millisecond):
		}
	}
}

// Conflicts reports whether a transaction was rolled back because of another one, so that it can be
// repeated.
func Conflicts(err error) bool {
	state := State(err)
	return state == "40001" || state == "40P01" || MySQLNumber(err) == "1020"
}
