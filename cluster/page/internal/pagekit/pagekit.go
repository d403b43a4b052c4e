// Package pagekit has what the page and its sections use to show data.
package pagekit

import (
	"fmt"
	"io/fs"
	"strings"
	"unicode/utf8"
)

// maxPayload is how many bytes of a payload are shown.
const maxPayload = 8 << 10

// Payload returns a payload as it is shown, and whether it is longer. It is "" if that is not text.
func Payload(payload []byte) (text string, cut bool) {
	if !utf8.Valid(payload) {
		return "", false
	}
	cut = len(payload) > maxPayload
	return strings.ToValidUTF8(string(payload[:min(len(payload), maxPayload)]), ""), cut
}

// Count says how many there are, in words: 1 run, 2 runs.
func Count[N int | int64](n N, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// Templates returns the files in the folder templates.
func Templates(embedded fs.FS) fs.FS {
	files, err := fs.Sub(embedded, "templates")
	if err != nil { // the folder is embedded
		panic(err)
	}
	return files
}

// An Option is a value of a list that can be chosen.
type Option struct {
	Value  string
	Chosen bool
}
