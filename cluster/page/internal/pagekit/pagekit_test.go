package pagekit_test

import (
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster/page/internal/pagekit"
)

// Count(1, …) is not plural.
//
// Fails when Count forgets the singular.
func TestCount(t *testing.T) {
	t.Parallel()
	if one, two := pagekit.Count(1, "run"), pagekit.Count(int64(2), "run"); one != "1 run" || two != "2 runs" {
		t.Error(one, two)
	}
}

// A duration has two or three digits, and units that everybody reads.
//
// Fails when Took loses the smaller unit of a few minutes.
func TestDurationsAreShort(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{0: "0 s", 412 * time.Microsecond: "412 µs",
		41 * time.Millisecond: "41 ms", 2449 * time.Millisecond: "2.4 s", 3 * time.Second: "3 s",
		99 * time.Second: "99 s", 252 * time.Second: "4 min 12 s", 2 * time.Minute: "2 min", 41 * time.Minute: "41 min",
		125 * time.Minute: "2 h 5 min", 26*time.Hour + time.Minute: "26 h", 72 * time.Hour: "3 days",
		-time.Minute: "-60 s"} {
		if got := pagekit.Took(d); got != want {
			t.Errorf("%v is shown as %s, want %s", d, got, want)
		}
	}
}

// The text of a schedule has the units of the page, and its durations are exact.
//
// Fails when Units leaves out seconds, or changes what is no duration.
func TestSchedulesHaveUnits(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"every 2m0s": "every 2 min", "every 1h40m30s": "every 1 h 40 min 30 s",
		"every 24h0m0s, offset 3h0m0s": "every 24 h, offset 3 h", "every 1.5s": "every 1.5 s", "every 0s": "every 0 s",
		"every 300ms": "every 300 ms", "daily at 03:00 in UTC": "daily at 03:00 in UTC", "*/5 * * * *": "*/5 * * * *",
		"every 1h0m0s from 2027-05-03T09:00:00Z": "every 1 h from 2027-05-03T09:00:00Z", "tick2s": "tick2s"} {
		if got := pagekit.Units(text); got != want {
			t.Errorf("%s is shown as %s, want %s", text, got, want)
		}
	}
}
