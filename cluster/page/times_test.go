package page_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster/page"
)

// A duration has two or three digits. An instant is a time of day with the letters UTC, and its
// tooltip has the date, too.
//
// Fails when took loses the smaller unit of a few minutes, or an instant has no tooltip.
func TestTimesAreShort(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{0: "0 s", 412 * time.Microsecond: "412 µs",
		41 * time.Millisecond: "41 ms", 2449 * time.Millisecond: "2.4 s", 3 * time.Second: "3 s",
		99 * time.Second: "99 s", 252 * time.Second: "4 min 12 s", 41 * time.Minute: "41 min",
		125 * time.Minute: "2 h 5 min", 26*time.Hour + time.Minute: "26 h", 72 * time.Hour: "3 days",
		-time.Minute: "-60 s"} {
		if got := page.Took(d); got != want {
			t.Errorf("%v is shown as %s, want %s", d, got, want)
		}
	}
	at := time.Now().UTC()
	if got := string(page.TimeOfDay(at)); !strings.Contains(got, ">"+at.Format("15:04 UTC")+"<") ||
		!strings.Contains(got, `title="`+at.Format("2006-01-02 15:04:05 UTC")+`"`) {
		t.Error(got)
	}
}
