package redislock

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/rediskit"
)

// For any prefix, no two names have a common key. On a Cluster, all keys of a name are on one node.
//
// Fails when CheckName accepts ":slot:".
func FuzzKeys(f *testing.F) {
	for _, pair := range [][2]string{{"a", "b"}, {"a", "a:slot"}, {"timer:a", "a"}, {"a", "a:slot:0"}, {"{a}", "a"},
		{"}", "{}"}, {"a:", "a"}, {"slot", "a:slot"}, {"", "slot:0"}, {"🕰", "%s"}} {
		f.Add("", pair[0], pair[1])
		f.Add("shop:", pair[0], pair[1])
		f.Add("a:slot", pair[0], pair[1])
	}
	f.Fuzz(func(t *testing.T, prefix, a, b string) {
		for _, tagged := range []bool{false, true} {
			s := &Store{prefix: prefix, tagged: tagged}
			if rediskit.CheckPrefix(prefix) != nil || driver.CheckName(a) != nil || driver.CheckName(b) != nil ||
				s.checkKey(a) != nil || s.checkKey(b) != nil {
				return
			}
			ofA, ofB := allKeys(s, a), allKeys(s, b)
			if shared := s.sharedKeys(); shared != "" {
				if slices.Contains(ofA, shared+"names") || slices.Contains(ofA, shared+"used") {
					t.Errorf("%q has a key that all names share, of %q", a, ofA)
				}
				if tagged && hashTag(shared+"names") != hashTag(ofA[0]) {
					t.Errorf("%q and %q are on different nodes of a Cluster", shared+"names", ofA[0])
				}
			}
			for _, mutex := range []bool{false, true} {
				if name, isMutex, ok := s.nameOf(s.state(a, mutex)); name != a || isMutex != mutex || !ok {
					t.Errorf("the state of %q, a mutex: %t, is that of %q, %t, %t", a, mutex, name, isMutex, ok)
				}
			}
			for _, key := range ofA {
				if tagged && hashTag(key) != hashTag(ofA[0]) {
					t.Errorf("%q: %q and %q are on different nodes of a Cluster", a, ofA[0], key)
				}
				if a != b && slices.Contains(ofB, key) {
					t.Errorf("%q and %q share the key %q", a, b, key)
				}
			}
			if slices.Sort(ofA); len(slices.Compact(ofA)) != len(allKeys(s, a)) {
				t.Errorf("%q: two of its keys are the same: %q", a, ofA)
			}
		}
	})
}

func allKeys(s *Store, name string) []string {
	k := s.keys(name, false)
	all := []string{k.state, k.index, k.base + "tokens", k.base + "released:0"}
	for i := range 12 {
		all = append(all, k.base+strconv.Itoa(i))
	}
	k = s.keys(name, true)
	return append(all, k.base, k.state, k.base+":slot:released")
}

// hashTag returns the part of a key that Redis Cluster hashes, according to its specification.
func hashTag(key string) string {
	open := strings.IndexByte(key, '{')
	if open < 0 {
		return key
	}
	if length := strings.IndexByte(key[open+1:], '}'); length > 0 {
		return key[open+1 : open+1+length]
	}
	return key
}

// Every answer of a server is either parsed unchanged or rejected with an error.
func FuzzAnswers(f *testing.F) {
	f.Add("ok", int64(0), "1", "3", "")
	f.Add("full", int64(3), "5", "9", `{"token":"t","host":"h","pid":1}`)
	f.Add("paused", int64(3), "5", "9", `{"by":"ann","note":"why"}`)
	f.Add("9", int64(math.MaxInt64), "-5", `{"by":"ann"}`, `"host":"h","pid":1`)
	f.Add("tick_first", int64(10_001), "1", `{"by":""}`, "}")
	f.Add("quarantine", int64(3), "", "x", "")
	f.Add("tick_taken", int64(math.MinInt64), "-1", "-1", "{")
	f.Fuzz(func(t *testing.T, verdict string, n int64, x, y, z string) {
		words := strings.Join([]string{verdict, strconv.FormatInt(n, 10), x, y, z}, " ")
		answers := [][]any{nil, {words}, {words + "\n" + x}, {verdict + " 1 2 3 4 " + x + "\n" + y}, {[]any{words, x}},
			{verdict + " 1 2 3 4 " + x + " " + y + " 1"}, {verdict + "\n" + z}, {verdict}, {verdict, n},
			{verdict, n, x, y}, {verdict, y, x, n, z}, {nil, nil, nil, nil}, {n, n, n, n}, {verdict, n, n, n, n},
			{verdict, []any{x}, x, y},
			{verdict, n, x, y, x, n}, {verdict, x, y, n, n, n}, {verdict, x, n, y, x, z}, {verdict, n, n, n, n, z},
			{verdict, x, x, x, x}, {verdict, n, x, y, x, z}, {verdict, x, n, n, n, x, z},
			{verdict, n, n, x, n, x, y, n}, {verdict, x, x, n, n, n, x, z}, {verdict, x, x, x, x, x, y, z},
			{n, z, z}, {x, n, z, n, n}, {verdict, n, x, y, n, y, z, x, y, z}, {verdict, x, n, z, x, z, z, n, n, z},
			{x, n, verdict, y, x, y, y, n, x, verdict}, {n, n, n, n, n, n, n, n, n, n},
			{n, x, "a:slot:mutex", n, n, n, z}, {"1", x, y + ":slot:state", int64(3), n, n, z}}
		for _, a := range answers {
			req := driver.Request{Name: "a", Slots: 3, Token: "t"}
			var g driver.Grant
			err := errAnswer
			if len(a) > 0 {
				g, err = parseAcquire(req, n, a[0])
			}
			sane := func(info driver.Info) bool {
				return info.SuccessAge >= 0 && info.Version >= 0 && info.SlotLimit >= 0 &&
					info.SlotLimit <= driver.MaxSlots
			}
			if err == nil && (g.Slot < 0 || g.Slot > max(2, g.Info.SlotLimit-1) || g.Fence <= 0 || g.Token != "t" ||
				!sane(g.Info)) {
				t.Errorf("%v: %+v", a, g)
			}
			if no, ok := errors.AsType[*driver.NotAcquiredError](err); ok &&
				(no.ExpiresIn < 0 || no.HeldFor < 0 || !sane(no.Info) ||
					no.PausedBy != (driver.Cause{}) && no.PausedBy.Validate() != nil) {
				t.Errorf("%v: %+v", a, no)
			}
			results := make([]driver.Result, 3)
			released := call{keys: make([]string, 3), answer: a}
			if released.splitHead(); released.failure == nil {
				released.failure = parseRelease(released.answer, []int{0, 1, 2}, results)
			}
			if released.failure == nil && len(a) != 4 {
				t.Errorf("%v: %v", a, results)
			}
			for _, a := range [][]any{a, {words}, {words, x, y}, {words + " " + words, x, y},
				{"1 0 0 revoked 5 7 error " + words, x, y}, {"1 5 7 0 5 7 1 " + x + " " + y}} {
				if err := parseExtend(a, []int{0, 1, 2}, results); err == nil {
					for _, r := range results {
						if r.RevokedBy != nil && (r.Outcome != driver.GrantLost || r.RevokedBy.Validate() != nil) ||
							r.Err != nil && r.Outcome != driver.GrantUnknown || !sane(r.Info) {
							t.Errorf("%v: %+v", a, r)
						}
					}
				}
			}
			if o, err := parseControlState("a", a); err == nil {
				if len(a) != 10 || o.Name != "a" || o.Version < 0 ||
					o.Pause != nil && (o.Pause.For <= 0 || o.Pause.Validate() != nil) ||
					o.Limit != nil && (o.Limit.Slots < 0 || o.Limit.Slots > driver.MaxSlots ||
						o.Limit.Validate() != nil) ||
					o.Trigger != nil && (o.Trigger.Age < 0 || o.Trigger.Validate() != nil) {
					t.Errorf("%v: %+v", a, o)
				}
			} else if !errors.Is(err, errAnswer) && !errors.Is(err, driver.ErrFault) {
				t.Errorf("%v: %v", a, err)
			}
			if page, err := (&Store{}).parsePage(a); err == nil {
				for _, l := range page.Leases {
					if driver.CheckName(l.Name) != nil || l.Slot < 0 || l.Slot >= driver.MaxSlots || l.HeldFor < 0 ||
						l.RenewedAgo < 0 || (l.ExpiresIn > 0) == (l.ReleasedAgo > 0) {
						t.Errorf("%v: %+v", a, l)
					}
				}
			}
			if _, err := parseList("a", true, a); err == nil && len(a)%3 != 1 {
				t.Errorf("%v: no error", a)
			}
		}
	})
}

// Check returns all faults of the options, and no call reaches a server.
func TestFaultsOfOptions(t *testing.T) {
	s := New(nil, Options{Prefix: "a:slot:b", Keys: 9, QuarantineTTL: -1, PoolSize: -1})
	err := s.Check()
	for _, want := range []string{"no client", `Prefix "a:slot:b"`, "Keys 9", "QuarantineTTL -1ns", "PoolSize -1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("missing: %s in %v", want, err)
		}
	}
	if _, err := s.TryAcquire(context.Background(), driver.Request{}); err == nil {
		t.Error("a call went through")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	ring := redis.NewRing(&redis.RingOptions{})
	defer ring.Close()
	single := redis.NewClient(&redis.Options{})
	defer single.Close()
	pipeliner, err := single.AutoPipeline()
	if err != nil {
		t.Fatal(err)
	}
	wrapped := struct{ redis.UniversalClient }{ring}
	for want, s := range map[string]*Store{
		"no client":              New((*redis.Client)(nil), Options{}),
		"a *redis.Ring moves":    New(ring, Options{}),
		"a *redis.AutoPipeliner": New(pipeliner, Options{SharedPool: true}),
		"or set SharedPool":      New(wrapped, Options{}),
		"an empty *Store":        nil,
		`Prefix "}x:" begins`:    New(redis.NewClusterClient(&redis.ClusterOptions{}), Options{Prefix: "}x:"}),
		"KeysPlain on a Redis ":  New(redis.NewClusterClient(&redis.ClusterOptions{}), Options{Keys: KeysPlain}),
	} {
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if err := New(wrapped, Options{SharedPool: true}).Check(); err != nil {
		t.Error(err)
	}
}

// On a Cluster, names in one hash slot can be taken in one step. The error for other names says how
// to put them into one slot.
//
// Fails when CheckShared compares the names without the prefix.
func TestCheckShared(t *testing.T) {
	client := redis.NewClient(&redis.Options{}) // never called
	t.Cleanup(func() { client.Close() })
	for _, c := range []struct {
		prefix       string
		tagged       bool
		name, shared string
		fine         bool
	}{
		{"", false, "timer:a", "limit:b", true},
		{"shop:", false, "timer:a", "limit:b", true},
		{"", true, "timer:a", "limit:b", false},
		{"shop:", true, "timer:a", "limit:b", false},
		{"{shop}:", true, "timer:a", "limit:b", true},
		{"shop:{1}:", true, "timer:a", "limit:b", true},
		{"", true, "timer:a}1", "timer:a}2", true},
		{"", true, "timer:a}1", "timer:a", true},
		{"shop:", true, "a}", "ab}", false},
		{"a:slot", false, "timer:a", ":b", false}, // the prefix makes the name invalid
	} {
		s := &Store{client: client, prefix: c.prefix, tagged: c.tagged}
		err := s.CheckShared(c.name, c.shared)
		if (err == nil) != c.fine {
			t.Errorf("prefix %q, tagged %v, %q and %q: %v", c.prefix, c.tagged, c.name, c.shared, err)
		}
		if same := hashTag(s.state(c.name, false)) == hashTag(s.state(c.shared, false)); c.tagged && same != c.fine {
			t.Errorf("prefix %q, %q and %q: hash tags equal: %v, CheckShared: %v", c.prefix, c.name, c.shared,
				same, err)
		}
		if err != nil && c.tagged && !strings.Contains(err.Error(), "Options.Prefix") {
			t.Errorf("the error does not say what to do: %v", err)
		}
	}
}
