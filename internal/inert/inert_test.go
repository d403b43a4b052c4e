package inert_test

import (
	"encoding/json"
	"testing"
	"unicode"

	"github.com/tickslot/tickslot/internal/inert"
)

// No character remains that controls a terminal or changes the writing direction, and JSON keeps
// its meaning.
//
// Fails when a character is missed, such as DEL, which encoding/json does not escape.
func TestNothingHiddenIsLeft(t *testing.T) {
	t.Parallel()
	const text = "a\x00\x1b[2J\x7f\u0085\u009b\u200b\u202e\u2066\u2028\ufeff\U000e0041\n\t\xff\"\\"
	marshaled, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	shown := inert.JSON(marshaled)
	for _, r := range inert.Line(text) + string(shown) + string(inert.YAML(marshaled)) {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' {
			t.Errorf("%U is left", r)
		}
	}
	var before, after string
	if json.Unmarshal(marshaled, &before) != nil || json.Unmarshal(shown, &after) != nil || before != after {
		t.Errorf("%q has become %q", before, after)
	}
	if got, want := inert.Line("a\nb\xff\x1b"), `a\nb\xff\u001b`; got != want {
		t.Errorf("%q, not %q", got, want)
	}
	if inert.Has("plain: é 日本") || !inert.Has("a\tb") {
		t.Error("Has is wrong")
	}
}
