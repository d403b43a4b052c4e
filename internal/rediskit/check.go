package rediskit

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tickslot/tickslot/dlock/driver"
)

// CheckPrefix returns what is wrong with a key prefix.
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

// CheckPoolSize returns what is wrong with a pool size.
func CheckPoolSize(size int) error {
	if size < 0 {
		return fmt.Errorf("option PoolSize %d: must be positive, or 0 for %d", size, DefaultPoolSize)
	}
	return nil
}

// CheckGrant returns what is wrong with a grant: text that Request.Validate rejects must not reach
// a script.
func CheckGrant(g *driver.Grant) error {
	return driver.Request{Name: g.Name, Slots: g.Slots, Token: g.Token, TTL: time.Second}.Validate()
}

// Millis rounds up: a lease must not be shorter than its holder trusts it.
func Millis(d time.Duration) int64 {
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}
