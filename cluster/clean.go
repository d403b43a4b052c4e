package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tickslot/tickslot/dlock"
)

// Maximum lengths of users' texts in bytes. Stores have columns of limited length.
const (
	maxNameLen  = 255
	maxTextLen  = 500
	maxStackLen = 4 << 10
)

// clean returns a text that any store accepts: valid UTF-8, without control characters (Postgres
// rejects NUL), and at most maxLen bytes long.
func clean(s string, maxLen int) string { return cleaned(s, maxLen, unicode.IsControl) }

// cleanLines is like clean, but keeps the ends of lines and tabs.
func cleanLines(s string, maxLen int) string {
	return cleaned(s, maxLen, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' })
}

// cleaned replaces the characters for which bad is true by spaces.
func cleaned(s string, maxLen int, bad func(rune) bool) string {
	s = strings.ToValidUTF8(s, "�")
	if strings.ContainsFunc(s, bad) {
		s = strings.Map(func(r rune) rune {
			if bad(r) {
				return ' '
			}
			return r
		}, s)
	}
	if len(s) <= maxLen {
		return s
	}
	for maxLen > 0 && !utf8.RuneStart(s[maxLen]) {
		maxLen--
	}
	return s[:maxLen]
}

// cleanInstant returns an instant in UTC that can be encoded as JSON, or zero. Any other instant
// would make the encoding of the whole snapshot fail.
func cleanInstant(t time.Time) time.Time {
	t = t.UTC().Round(0)
	if t.Year() < 0 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}

func cleanHolder(h dlock.Holder) dlock.Holder {
	return dlock.Holder{Host: clean(h.Host, maxNameLen), PID: h.PID, ID: clean(h.ID, maxKindLen)}
}

// idOf returns an ID that is equal only for equal parts.
func idOf(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// grantOf returns an ID for a grant that does not reveal its token: anyone with the token can end
// the grant.
func grantOf(token string) string { return idOf("grant", token) }
