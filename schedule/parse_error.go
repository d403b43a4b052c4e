package schedule

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// fault returns an error about a text that the user wrote. It quotes the text, describes the fault,
// and marks the byte offset at with a caret under the text.
func fault(kind, text string, at int, format string, args ...any) error {
	const before, after = 50, 40 // how many characters around the fault are shown
	at = min(at, len(text))
	left, right := legible(text[:at]), legible(text[at:])
	if len(left) > before {
		left = append([]rune{'…'}, left[len(left)-before:]...)
	}
	if len(right) > after {
		right = append(right[:after], '…')
	}
	return fmt.Errorf("%s %s: %s\n\t%s%s\n\t%s^", kind, quote(text), fmt.Sprintf(format, args...), string(left),
		string(right), strings.Repeat(" ", len(left)))
}

// legible makes every character one column wide, so that the caret is at the right column.
func legible(s string) []rune {
	var rs []rune
	for _, r := range s {
		switch {
		case unicode.IsSpace(r):
			r = ' '
		case r == utf8.RuneError || !unicode.IsPrint(r):
			r = '?'
		}
		rs = append(rs, r)
	}
	return rs
}

// quote formats s with %q and shortens the result to fit in an error.
func quote(s string) string {
	const maxRunes = 60
	if utf8.RuneCountInString(s) <= maxRunes {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprintf("%.*q…", maxRunes, s)
}
