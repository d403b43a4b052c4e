// Package inert makes untrusted text (names, errors, notes) safe to display. It escapes characters
// that are invisible, move the cursor of a terminal, or change the writing direction.
package inert

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// hidden reports whether a character is invisible or changes how other characters are displayed: by
// moving the cursor of a terminal, or by changing the writing direction.
func hidden(r rune) bool {
	return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' ||
		r == '\u2029')
}

// Bytes replaces hidden characters with escapes such as "\u202e". The result is a different text,
// so use it only for text that people read, such as HTML and logs.
func Bytes(text []byte) []byte {
	return escape(text, func(out []byte, r rune, raw byte) []byte {
		if r == utf8.RuneError {
			return fmt.Appendf(out, `\x%02x`, raw)
		}
		return appendEscape(out, r)
	})
}

// Text is like Bytes, for a string.
func Text(s string) string { return string(Bytes([]byte(s))) }

var breaks = strings.NewReplacer("\n", `\n`, "\t", `\t`)

// Line is like Text, but returns one line without tabs, for a table cell.
func Line(s string) string { return breaks.Replace(Text(s)) }

// Has reports whether Line would change the text.
func Has(s string) bool { return Line(s) != s }

// JSON escapes hidden characters in encoded JSON, so that the value stays the same and a terminal
// displays it safely. encoding/json has already escaped most hidden ASCII characters, but not DEL,
// and leaves no invalid UTF-8.
func JSON(text []byte) []byte { return quoted(text, appendEscape) }

// YAML is like JSON, for encoded YAML in which hidden characters occur only in double-quoted
// strings.
func YAML(text []byte) []byte {
	return quoted(text, func(out []byte, r rune) []byte {
		if r > 0xffff {
			return fmt.Appendf(out, `\U%08x`, r)
		}
		return appendEscape(out, r)
	})
}

func quoted(text []byte, replace func(out []byte, r rune) []byte) []byte {
	return escape(text, func(out []byte, r rune, raw byte) []byte {
		if r == utf8.RuneError {
			return append(out, raw)
		}
		return replace(out, r)
	})
}

func appendEscape(out []byte, r rune) []byte {
	if r > 0xffff { // a surrogate pair, as in JSON
		r -= 0x10000
		return fmt.Appendf(out, `\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
	}
	return fmt.Appendf(out, `\u%04x`, r)
}

// escape replaces hidden characters and bytes that are not valid UTF-8.
func escape(text []byte, replace func(out []byte, r rune, raw byte) []byte) []byte {
	clean := true
	for i := 0; i < len(text) && clean; {
		r, n := utf8.DecodeRune(text[i:])
		clean = !hidden(r) && (r != utf8.RuneError || n != 1)
		i += n
	}
	if clean {
		return text
	}
	out := make([]byte, 0, len(text)+64)
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if hidden(r) || r == utf8.RuneError && n == 1 {
			out = replace(out, r, text[i])
		} else {
			out = append(out, text[i:i+n]...)
		}
		i += n
	}
	return out
}
