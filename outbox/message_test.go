package outbox_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/outbox"
)

// NewID returns the IDs of the test vectors in the package's comment, for programs in other
// languages. Fails when IDs change. A producer that repeats its work after an upgrade would then
// append its messages twice.
func TestIDsNeverChange(t *testing.T) {
	t.Parallel()
	for _, v := range idVectors {
		if got := outbox.NewID(v.source, v.version, v.index).String(); got != v.id {
			t.Errorf("NewID(%q, %d, %d) = %s, want %s", v.source, v.version, v.index, got, v.id)
		}
	}
}

var idVectors = []struct {
	source  string
	version uint64
	index   int
	id      string
}{
	{"order-42", 7, 0, "3457d5ae-dd45-50af-8990-1ee9bc64d5fe"},
	{"order-42", 7, 1, "350e7cdb-9ede-5190-ad5a-a606e0653147"},
	{"order-427", 0, 0, "d61cb410-7c32-5ef1-b3ae-78904734d4ca"},
	{"", 0, 0, "097c4388-b2bb-5446-98c4-4a36a89acd9d"},
	{"größe 😀", math.MaxUint64, -1, "4cb3a9d0-a4c2-565d-983f-3dd43eaa9027"},
}

// Fails when two sources, versions or indexes have the same ID, because their concatenated texts
// are equal.
func TestIDsDoNotCollide(t *testing.T) {
	t.Parallel()
	seen := map[outbox.ID]string{}
	for _, source := range []string{"a", "a1", "a12", "a:1", "1:a", "", "2:", "a\x00"} {
		for _, version := range []uint64{0, 1, 2, 12, 112} {
			for _, index := range []int{0, 1, 2, 12, 112} {
				id, from := outbox.NewID(source, version, index), fmt.Sprintf("%q %d %d", source, version, index)
				if old, ok := seen[id]; ok {
					t.Errorf("%s and %s have the ID %s", old, from, id)
				}
				seen[id] = from
				if back, err := outbox.ParseID(id.String()); err != nil || back != id {
					t.Errorf("%s is read as %s, %v", id, back, err)
				}
			}
		}
	}
	if _, err := outbox.ParseID("none"); err == nil {
		t.Error("ParseID accepts \"none\"")
	}
}

// Fails when a message is appended that is invalid or that not every database can store.
func TestMessagesThatAreRefused(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	long := strings.Repeat("x", outbox.MaxNameLen+1)
	for name, m := range map[string]outbox.Message{
		"no ID":            {Topic: "t"},
		"no topic":         {ID: outbox.RandomID()},
		"a long topic":     {ID: outbox.RandomID(), Topic: long},
		"a long key":       {ID: outbox.RandomID(), Topic: "t", Key: long},
		"NUL":              {ID: outbox.RandomID(), Topic: "t\x00"},
		"no UTF-8":         {ID: outbox.RandomID(), Topic: "t", Key: "\xff"},
		"a large payload":  {ID: outbox.RandomID(), Topic: "t", Payload: make([]byte, 10<<20)},
		"a header's name":  {ID: outbox.RandomID(), Topic: "t", Headers: map[string]string{"": "x"}},
		"a header's value": {ID: outbox.RandomID(), Topic: "t", Headers: map[string]string{"x": "\xff"}},
		"headers too large": {ID: outbox.RandomID(), Topic: "t",
			Headers: map[string]string{"x": strings.Repeat("x", 20000)}},
	} {
		if _, err := f.box.Append(t.Context(), f.store.Begin(), m); err == nil {
			t.Errorf("%s: appended", name)
		}
	}
	ok := outbox.Message{ID: outbox.RandomID(), Topic: "t"}
	if _, err := f.box.Append(t.Context(), nil, ok); err == nil {
		t.Error("appended without a transaction")
	}
	if _, err := f.box.Append(nil, f.store.Begin(), ok); err == nil { //nolint:staticcheck // tests a nil context
		t.Error("appended without a context")
	}
	if _, err := (*outbox.Outbox)(nil).Append(t.Context(), f.store.Begin(), ok); err == nil {
		t.Error("appended without an outbox")
	}
	if _, err := new(outbox.Outbox).Append(t.Context(), f.store.Begin(), ok); err == nil {
		t.Error("appended without a database")
	}
	ended := f.store.Begin()
	ended.Commit()
	if _, err := f.box.Append(t.Context(), ended, ok); err == nil {
		t.Error("appended in a transaction that has ended")
	}
	for name, text := range map[string]string{"quotes": `'"` + "`", "runes": "größe 😀", "control": "a\n\t\x01",
		"200 bytes": long[1:]} {
		m := outbox.Message{ID: outbox.RandomID(), Topic: text, Key: text, Headers: map[string]string{text: text}}
		if fresh, err := f.box.Append(t.Context(), f.store.Begin(), m); !fresh || err != nil {
			t.Errorf("%s: %v, %v", name, fresh, err)
		}
	}
}

// Fails when a config that cannot work is accepted, or when one fault hides another.
func TestConfigsThatAreRefused(t *testing.T) {
	t.Parallel()
	sink := outbox.SinkFunc(func(context.Context, outbox.Delivery) error { return nil })
	for name, c := range map[string]outbox.RelayConfig{
		"Sinks":             {},
		"nil":               {Sinks: map[string]outbox.Sink{"t": nil}},
		"Shards":            {DefaultSink: sink, Shards: 65},
		"Retry.MaxAttempts": {DefaultSink: sink, Retry: outbox.Retry{MaxAttempts: -1}},
		"Retry":             {DefaultSink: sink, Retry: outbox.Retry{FirstWait: 2, MaxWait: 1}},
		"Retry.MaxElapsed":  {DefaultSink: sink, Retry: outbox.Retry{MaxElapsedTime: time.Microsecond}},
		"InboxRetention":    {DefaultSink: sink, Retry: outbox.Retry{MaxElapsedTime: outbox.DefaultInboxRetention}},
		"TTL":               {DefaultSink: sink, TTL: 2999 * time.Millisecond},
		"RetryInterval":     {DefaultSink: sink, RetryInterval: time.Millisecond},
		"PollInterval":      {DefaultSink: sink, PollInterval: 1},
		"Name":              {DefaultSink: sink, Name: strings.Repeat("x", 201)},
	} {
		_, err := outbox.NewRelay(newFleet(t).box, c)
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := outbox.NewRelay(nil, outbox.RelayConfig{}); err == nil ||
		!strings.Contains(err.Error(), "no database") || !strings.Contains(err.Error(), "Sinks") {
		t.Error(err)
	}
}

// Fails when a window forgets IDs for which it has room, remembers too many, or counts an ID twice.
func TestWindow(t *testing.T) {
	t.Parallel()
	var ids []outbox.ID
	for i := range 2000 {
		ids = append(ids, outbox.NewID("a", 1, i))
	}
	var w outbox.Window
	for i, id := range ids {
		if !w.Add(id) || w.Add(id) {
			t.Fatalf("%d is not new, or is new twice", i)
		}
	}
	for i, id := range ids {
		if w.Has(id) != (i >= 2000-outbox.DefaultWindow) {
			t.Fatalf("%d: %v", i, w.Has(id))
		}
	}
	small := outbox.NewWindow(2)
	small.Load(ids[:5])
	if small.Has(ids[2]) || !small.Has(ids[3]) || !small.Has(ids[4]) || !small.Add(ids[0]) || small.Has(ids[3]) {
		t.Error("the window does not contain exactly the last two")
	}
}

// Programs in other languages can compute IDs and the hash of a key as the package comment says.
//
// Fails when the comment has a value that differs from the result of NewID or from the value that
// Append stores.
func TestVectorsInTheComment(t *testing.T) {
	t.Parallel()
	ids := vectorsOf(t, 5, "source", "version", "index", "name", "ID")
	for i, row := range ids {
		v := idVectors[i]
		length := func(text string) string { return fmt.Sprintf("%d:%s", len(text), text) }
		name := length(v.source) + length(fmt.Sprint(v.version)) + length(fmt.Sprint(v.index))
		want := []string{cmp.Or(v.source, "(empty)"), fmt.Sprint(v.version), fmt.Sprint(v.index), name, v.id}
		if !slices.Equal(row, want) {
			t.Errorf("the comment has %q, want %q", row, want)
		}
	}
	for _, row := range vectorsOf(t, 4, "key", "ID", "key_hash") {
		m := outbox.Message{ID: outbox.RandomID(), Topic: "t", Key: row[0]}
		if row[0] == "(empty)" {
			m.Key = ""
			var err error
			if m.ID, err = outbox.ParseID(row[1]); err != nil {
				t.Fatal(err)
			}
		}
		if want := row[2]; fmt.Sprint(m.Hash()) != want {
			t.Errorf("key %q, ID %v: %d, but the comment says %s", m.Key, m.ID, m.Hash(), want)
		}
	}
}

// vectorsOf returns the rows of the table in the package comment that has the given columns.
func vectorsOf(t *testing.T, rows int, columns ...string) (table [][]string) {
	t.Helper()
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	gap := regexp.MustCompile(` {2,}`)
	_, rest, found := strings.Cut(gap.ReplaceAllString(string(text), "  "), "//\t"+strings.Join(columns, "  ")+"\n")
	for line := range strings.Lines(rest) {
		row, is := strings.CutPrefix(strings.TrimSpace(line), "//\t")
		if !is {
			break
		}
		if table = append(table, strings.Split(row, "  ")); len(table[len(table)-1]) != len(columns) {
			t.Fatalf("%q does not have the columns %v", row, columns)
		}
	}
	if !found || len(table) != rows {
		t.Fatalf("%d rows of %v, want %d", len(table), columns, rows)
	}
	return table
}
