package linear

import (
	"testing"
	"time"

	"github.com/tickslot/tickslot/proof/torture"
)

const ms = int64(time.Millisecond)

// op returns a call from one millisecond to another. twice returns a release that the driver sent
// twice, with the second answer.
func twice(id int64, token string, call, ret int64) torture.Op {
	o := op(id, "release", token, "lost", call, ret)
	o.Repeats = true
	return o
}

func op(id int64, what, token, result string, from, to int64) torture.Op {
	return torture.Op{ID: id, Client: int(id), Op: what, Name: "a", Slots: 1, Token: token, Result: result,
		Call: from * ms, Return: to * ms}
}

// Fails when one of the rules of step is missing, or an unknown call counts as not executed.
func TestCheck(t *testing.T) {
	const ttl = 100 * time.Millisecond
	for _, c := range []struct {
		name string
		ops  []torture.Op
		lost []Span
		want Verdict
	}{
		{"one after the other", []torture.Op{op(1, "acquire", "a", "ok", 0, 1), op(2, "release", "a", "ok", 5, 6),
			op(3, "acquire", "b", "ok", 7, 8)}, nil, "ok"},
		{"two at once", []torture.Op{op(1, "acquire", "a", "ok", 0, 1), op(2, "acquire", "b", "ok", 7, 8)},
			nil, "illegal"},
		{"after it expired", []torture.Op{op(1, "acquire", "a", "ok", 0, 1), op(2, "acquire", "b", "ok", 102, 103)},
			nil, "ok"},
		{"expired too early", []torture.Op{op(1, "acquire", "a", "ok", 0, 1), op(2, "acquire", "b", "ok", 50, 60)},
			nil, "illegal"},
		{"extended, and expired too early", []torture.Op{op(1, "acquire", "a", "ok", 0, 1),
			op(2, "extend", "a", "ok", 80, 81), op(3, "acquire", "b", "ok", 120, 121)}, nil, "illegal"},
		{"did not expire", []torture.Op{op(1, "acquire", "a", "ok", 0, 1), op(2, "acquire", "b", "no", 190, 191)},
			nil, "illegal"},
		{"extended after it was another's", []torture.Op{op(1, "acquire", "a", "ok", 0, 1),
			op(2, "acquire", "b", "ok", 120, 121), op(3, "extend", "a", "ok", 125, 126)}, nil, "illegal"},
		{"released by another", []torture.Op{op(1, "acquire", "a", "ok", 0, 1), op(2, "acquire", "b", "ok", 120, 121),
			op(3, "release", "a", "lost", 125, 126),
			op(4, "acquire", "c", "ok", 130, 131)}, nil, "illegal"},
		{"an unknown one that was carried out", []torture.Op{op(1, "acquire", "a", "unknown", 0, 50),
			op(2, "acquire", "b", "no", 70, 71)}, nil, "ok"},
		{"an unknown one that was not", []torture.Op{op(1, "acquire", "a", "unknown", 0, 50),
			op(2, "acquire", "b", "ok", 70, 71)}, nil, "ok"},
		{"an unknown one that is found again", []torture.Op{op(1, "acquire", "a", "unknown", 0, 50),
			op(2, "acquire", "a", "ok", 60, 61), op(3, "acquire", "b", "no", 70, 71)}, nil, "ok"},
		{"an unknown one cannot be in two places", []torture.Op{op(1, "acquire", "a", "unknown", 0, 50),
			op(2, "acquire", "b", "ok", 70, 71), op(3, "extend", "a", "ok", 72, 73)}, nil, "illegal"},
		{"an unknown release that was carried out", []torture.Op{op(1, "acquire", "a", "ok", 0, 1),
			op(2, "release", "a", "unknown", 5, 6), op(3, "acquire", "b", "ok", 8, 9)}, nil, "ok"},
		{"an unknown release that was not", []torture.Op{op(1, "acquire", "a", "ok", 0, 1),
			op(2, "release", "a", "unknown", 5, 6), op(3, "acquire", "b", "no", 8, 9)}, nil, "ok"},
		{"a release that the driver sent twice", []torture.Op{op(1, "acquire", "a", "ok", 0, 1), twice(2, "a", 5, 9),
			op(3, "acquire", "b", "ok", 7, 8)}, nil, "ok"},
		{"a release that the driver sent twice, and that was not carried out", []torture.Op{
			op(1, "acquire", "a", "ok", 0, 1), twice(2, "a", 5, 9), op(3, "acquire", "b", "no", 10, 11)},
			nil, "illegal"},
		{"a release that was sent once, and is lost too early", []torture.Op{op(1, "acquire", "a", "ok", 0, 1),
			op(2, "release", "a", "lost", 5, 9)}, nil, "illegal"},
		{"lost too early", []torture.Op{op(1, "acquire", "a", "ok", 0, 1), op(2, "extend", "a", "lost", 5, 6)},
			nil, "illegal"},
		{"asked again", []torture.Op{op(1, "acquire", "a", "ok", 0, 1), op(2, "acquire", "a", "ok", 5, 6),
			op(3, "acquire", "b", "no", 7, 8)}, nil, "ok"},
		{"forgotten", []torture.Op{op(1, "acquire", "a", "ok", 0, 1), op(2, "acquire", "b", "ok", 7, 8)},
			[]Span{{3 * ms, 5 * ms}}, "ok"},
	} {
		if got := Check(c.ops, ttl, c.lost, 10*time.Second); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
