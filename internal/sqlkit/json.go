package sqlkit

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// InJSON encodes a value as ASCII JSON, which is the same in any character set of a connection.
func InJSON(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // such values can always be encoded
	}
	if !slices.ContainsFunc(text, func(b byte) bool { return b >= utf8.RuneSelf }) {
		return string(text)
	}
	var b strings.Builder
	b.Grow(len(text))
	for _, r := range string(text) {
		switch {
		case r < utf8.RuneSelf:
			b.WriteByte(byte(r))
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
