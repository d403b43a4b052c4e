package sqllock_test

import (
	sqldriver "database/sql/driver"
	"reflect"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
)

// A page is one batch. Its arguments are the prefix, the row before the page, the page's size, and
// how long released leases are shown.
func TestSQLServerEnumerate(t *testing.T) {
	t.Parallel()
	s := (&scripted{}).
		will(`[{"n":"73686F703A61","slot":0,"host":"h","pid":7,"id":"i","fence":9,"held_for":3000000,"renewed_ago":2000000,"expires_in":1000000},`+
			`{"n":"73686F703A623A736C6F743A","slot":4,"host":"h","pid":8,"id":"j","fence":10,"held_for":3000000,"expires_in":-9,"released_ago":0},`+
			`{"n":"6F74686572","slot":0,"fence":11},{"n":"73686F703A","slot":0,"fence":12}]`,
			int64(4), []byte("shop:b:slot:"), int64(4)).
		will(`[]`, int64(4), []byte("z"), int64(0)).
		will(`[]`, int64(0), []byte{}, int64(0))
	store := s.store(t, sqllock.Options{Prefix: "shop:", TableName: "it's [locks]"})
	sent := func(want ...string) {
		t.Helper()
		text, args := s.last()
		wellFormed(t, text, len(args))
		for i, w := range want {
			if got := asText(args[i].Value); got != w {
				t.Errorf("parameter %d is %s, want %s", i+1, got, w)
			}
		}
	}
	p, err := store.Enumerate(t.Context(), "", 4)
	want := driver.LeasePage{Leases: []driver.LeaseInfo{
		{Name: "a", Mutex: true, Holder: driver.Holder{Host: "h", PID: 7, ID: "i"}, Fence: 9, HeldFor: 3 * time.Second,
			RenewedAgo: 2 * time.Second, ExpiresIn: time.Second},
		{Name: "b", Slot: 4, Holder: driver.Holder{Host: "h", PID: 8, ID: "j"}, Fence: 10, HeldFor: 3 * time.Second,
			ReleasedAgo: time.Microsecond},
	}, Next: "4 b:slot:"}
	if err != nil || !reflect.DeepEqual(p, want) {
		t.Errorf("%+v, %v, want %+v", p, err, want)
	}
	sent("shop:", "shop:", "2147483647", "4", "60000000")
	for _, what := range []string{"the last row has another prefix", "there are no rows"} {
		if p, err := store.Enumerate(t.Context(), p.Next, 4); err != nil || len(p.Leases) != 0 || p.Next != "" {
			t.Errorf("%s: %+v, %v: must be the last page", what, p, err)
		}
		sent("shop:", "shop:b:slot:", "4", "4", "60000000")
	}
	if len(s.texts) != 3 {
		t.Errorf("%d statements were sent, want 3", len(s.texts))
	}
}

// An invalid answer is an error, never a page that the next call returns again.
func TestEnumerateAnswersThatMakeNoSense(t *testing.T) {
	t.Parallel()
	for what, answer := range map[string][]sqldriver.Value{
		"no JSON":            {"nonsense", int64(1), []byte("b"), int64(0)},
		"no hex":             {`[{"n":"no hex"}]`, int64(1), []byte("b"), int64(0)},
		"the page before":    {`[]`, int64(1), []byte("a"), int64(-1)},
		"the same row":       {`[]`, int64(1), []byte("a"), int64(0)},
		"too many rows":      {`[]`, int64(11), []byte("b"), int64(0)},
		"less than none":     {`[]`, int64(-1), []byte("b"), int64(0)},
		"leases of no row":   {`[{"n":"61","slot":0,"fence":9}]`, int64(0), []byte{}, int64(0)},
		"nothing":            {nil, nil, nil, nil},
		"one column":         {`[]`},
		"a lease that is no": {`[5]`, int64(1), []byte("b"), int64(0)},
	} {
		p, err := (&scripted{}).will(answer...).store(t, sqllock.Options{}).Enumerate(t.Context(), "0 a", 10)
		if err == nil || len(p.Leases) > 0 || p.Next != "" {
			t.Errorf("%s: %+v, %v: must be an error", what, p, err)
		}
	}
}
