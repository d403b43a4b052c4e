package rediskit

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tickslot/tickslot/dlock/driver"
)

// CheckPrefix returns the fault of a key prefix, or nil.
func CheckPrefix(prefix string) error {
	switch {
	case len(prefix) > driver.MaxNameLen:
		return fmt.Errorf("option Prefix of %d bytes: at most %d", len(prefix), driver.MaxNameLen)
	case !utf8.ValidString(prefix) || strings.ContainsFunc(prefix, unicode.IsControl):
		return fmt.Errorf("option Prefix %q: use text without control characters", prefix)
	case strings.Contains(prefix, ":slot:"):
		return fmt.Errorf(`option Prefix %q has ":slot:" in it: choose another`, prefix)
	}
	return nil
}

// CheckPoolSize returns the fault of a pool size, or nil.
func CheckPoolSize(size int) error {
	if size < 0 {
		return fmt.Errorf("option PoolSize %d: must be positive, or 0 for %d", size, DefaultPoolSize)
	}
	return nil
}

// CheckGrant returns the fault of a grant, or nil. Text that Request.Validate rejects must not
// reach a script.
func CheckGrant(g *driver.Grant) error {
	return driver.Request{Name: g.Name, Slots: g.Slots, Token: g.Token, TTL: time.Second}.Validate()
}

// Millis rounds up, because a lease must not end before its holder stops trusting it.
func Millis(d time.Duration) int64 {
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}
