package demo

import (
	"bytes"
	"strings"
	"testing"
)

// The recorder must detect violations; otherwise its result means nothing.
func TestRecorderFindsFault(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	rec := newRecorder(&out)
	rec.begin(start{host: "a", timer: sendDigest})
	if err := rec.violations(); err != nil {
		t.Fatal(err)
	}
	rec.begin(start{host: "b", timer: sendDigest})
	err := rec.violations()
	if err == nil {
		t.Fatal("two runs of one tick in one slot found no objection")
	}
	for _, want := range []string{"2 runs at once", "2 starts of one tick",
		"b began in slot 0 while a was still there"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing %q in:\n%v", want, err)
		}
	}
}
