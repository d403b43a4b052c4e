package redislock

import (
	"errors"
	"fmt"
	"testing"

	"github.com/tickslot/tickslot/dlock/driver"
)

// A server's refusal is a fault of its setup or of a key, even if the reply came too late to be
// used. It is not an outage, in which timers would run without the store.
//
// Fails when classify looks only at the beginning of a late error.
func TestRefusalThatCameTooLate(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]error{
		"NOPERM User x has no permissions to run the 'evalsha' command": driver.ErrSetup,
		"WRONGPASS invalid username-password pair or user is disabled.": driver.ErrSetup,
		"TICKSLOT SETUP scripts may not call INFO":                      driver.ErrSetup,
		"TICKSLOT what is at the key is no hash":                        driver.ErrFault,
		"WRONGTYPE Operation against a key holding the wrong kind":      driver.ErrFault,
		"LOADING Redis is loading the dataset in memory":                nil,
	} {
		inTime := errors.New(text)
		late := fmt.Errorf("redislock: extend: %w", &lateError{"127.0.0.1:6379", inTime})
		for _, err := range []error{inTime, late} {
			got := classify(err, true, false)
			for _, kind := range []error{driver.ErrSetup, driver.ErrFault} {
				if errors.Is(got, kind) != (kind == want) {
					t.Errorf("%v: must be %v", got, want)
				}
			}
		}
	}
	if err := classify(&lateError{"127.0.0.1:6379", nil}, true, false); !errors.Is(err, errTooLate) ||
		errors.Is(err, driver.ErrSetup) || errors.Is(err, driver.ErrFault) {
		t.Errorf("a late reply: %v", err)
	}
}
