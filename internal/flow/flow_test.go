package flow_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/tickslot/tickslot/internal/flow"
)

// What came and what left is counted by name and interval. If a part has more entries than are
// read, the interval of the oldest of them is incomplete, and counting begins after it for all
// parts.
//
// Fails when an incomplete interval is counted, and when parts that left are not added up.
func TestFlowOfRows(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 14, 3, 0, 0, time.UTC)
	n := flow.NumberOf(now)
	at := func(back int64) time.Time {
		return time.Date(2026, 11, 30, 14, 0, 0, 0, time.UTC).Add(time.Duration(-back) * flow.Interval)
	}
	rows := []flow.Row{
		{flow.In, "b", n, 2}, {flow.In, "a", n, 1}, {flow.In, "a", n - 3, 4}, {flow.In, "a", n - 80, 9},
		{"succeeded", "a", n - 3, 2}, {"dead", "a", n - 3, 1}, {"dead", "b", n - 4, 1},
	}
	want := flow.Flow{From: at(71), Until: now, Counts: []flow.Count{{"b", at(4), 0, 1}, {"a", at(3), 4, 3},
		{"a", at(0), 1, 0}, {"b", at(0), 2, 0}}}
	if got := flow.Of(rows, now); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	rows[4].Count = flow.Most - 1 // with one of b
	rows = append(rows, flow.Row{Part: "succeeded", Name: "b", N: n - 2, Count: 1})
	want = flow.Flow{From: at(2), Until: now, Counts: []flow.Count{{"b", at(2), 0, 1}, {"a", at(0), 1, 0},
		{"b", at(0), 2, 0}}}
	if got := flow.Of(rows, now); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
