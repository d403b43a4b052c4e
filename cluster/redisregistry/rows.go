package redisregistry

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/dlock"
)

// This file encodes and decodes rows. A row starts with the values that scripts compare, as text,
// followed by the rest as JSON. A later version may add JSON fields, which this version ignores.

type wireHolder struct {
	Host string `json:"host"`
	PID  int    `json:"pid"`
	ID   string `json:"id"`
}

type wireHost struct {
	wireHolder
	Environment string        `json:"env,omitempty"`
	AppVersion  string        `json:"app,omitempty"`
	Version     string        `json:"version,omitempty"`
	Offset      int64         `json:"offset,omitempty"` // of the host's clock; in ns, like all durations here
	TTL         time.Duration `json:"ttl"`
	Left        bool          `json:"left,omitempty"`
}

type wireLease struct {
	wireHolder
	Name     string      `json:"name"`
	Slots    int         `json:"slots,omitempty"`
	Slot     int         `json:"slot,omitempty"`
	Kind     string      `json:"kind,omitempty"`
	Fence    dlock.Fence `json:"fence,omitempty"`
	Grant    string      `json:"grant,omitempty"`
	Released bool        `json:"released,omitempty"`
}

type wireEvent struct {
	wireHolder
	EventID string            `json:"event"`
	Kind    cluster.EventKind `json:"kind"`
	Name    string            `json:"name,omitempty"`
	Slot    int               `json:"slot,omitempty"`
	Fence   dlock.Fence       `json:"fence,omitempty"`
	Text    string            `json:"text,omitempty"`
}

type wireRun struct {
	wireHolder
	RunID    string        `json:"run"`
	Timer    string        `json:"timer"`
	Tick     *int64        `json:"tick,omitempty"` // µs since 1970
	Slot     int           `json:"slot"`
	Fence    dlock.Fence   `json:"fence,omitempty"`
	Took     time.Duration `json:"took"`
	Outcome  string        `json:"outcome"`
	Err      string        `json:"err,omitempty"`
	Stack    string        `json:"stack,omitempty"`
	Attempts int           `json:"attempts,omitempty"`
	By       string        `json:"by,omitempty"`
}

// The numbers of bytes of a text that are stored.
const (
	maxText  = 2_000 // the error of a run may be pages long
	maxStack = 4 << 10
)

func cut(text string) string { return cutTo(text, maxText) }

// cutTo shortens text to at most so many bytes, between runes.
func cutTo(text string, most int) string {
	if len(text) <= most {
		return text
	}
	const mark = "…"
	end := most - len(mark)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + mark
}

// maxDuration bounds durations, so that scripts compute with positive numbers below 2^53.
const maxDuration = 50 * 365 * 24 * time.Hour

func micros(d time.Duration) int64 { return min(max(d, -maxDuration), maxDuration).Microseconds() }

// holderKey returns a key that is unambiguous for any text in h.
func holderKey(h dlock.Holder) string {
	return fmt.Sprintf("%d:%s%d:%s", len(h.Host), h.Host, h.PID, h.ID)
}

func leaseKey(l cluster.LeaseRecord) string {
	if l.Slots == 0 {
		return "mutex:" + l.Name
	}
	return strconv.Itoa(l.Slot) + ":" + l.Name
}

// timerKey returns the common prefix of the keys of a timer's runs. No key of another timer begins
// with it.
func timerKey(timer string) string { return strconv.Itoa(len(timer)) + ":" + timer }

// grantKey returns a short text without spaces that identifies the grant of a lease.
func grantKey(l cluster.LeaseRecord) string {
	sum := sha256.Sum256([]byte(holderKey(l.Holder) + "\x00" + l.Grant))
	return hex.EncodeToString(sum[:12])
}

func row(fields any) string {
	b, err := json.Marshal(fields)
	if err != nil { // strings and numbers can always be encoded
		return "{}"
	}
	return string(b)
}

// A span describes how buckets of one width are stored: how much time one field covers, and how
// long it is kept.
type span struct {
	letter            string
	width, span, keep time.Duration
}

var spans = []span{
	{"f", cluster.FineBucket, time.Hour, cluster.FineRetention},
	{"c", cluster.CoarseBucket, 24 * time.Hour, cluster.CoarseRetention},
}

func spanOf(width time.Duration) span {
	for _, s := range spans {
		if s.width == width {
			return s
		}
	}
	return span{"x", width, width, cluster.FineRetention} // from a later version
}

func writeArgs(b cluster.Batch) []any {
	hosts := 0
	if b.Host != nil {
		hosts = 1
	}
	args := make([]any, 0, 10+5*hosts+8*len(b.Leases)+3*len(b.Events)+4*len(b.Runs)+9*len(b.Timers)+11*len(b.Buckets))
	args = append(args, idleExpiry.Milliseconds(), cluster.MaxEvents, cluster.RunsPerTimer,
		hosts, len(b.Leases), len(b.Events), len(b.Runs), b.Number, len(b.Timers), len(b.Buckets))
	if h := b.Host; h != nil {
		args = append(args, holderKey(h.Holder), max(0, micros(h.UpFor)), max(0, micros(h.TTL)),
			row(wireHost{wireHolder(h.Holder), h.Environment, h.AppVersion, h.Version, int64(h.ClockOffset), h.TTL,
				h.Left}),
			pack(h.Detail))
	}
	for _, l := range b.Leases {
		released := 0
		if l.Released {
			released = 1
		}
		args = append(args, leaseKey(l), micros(l.HeldFor), micros(l.RenewedAgo), micros(l.ExpiresIn), released,
			max(0, int64(l.Fence)), grantKey(l),
			row(wireLease{wireHolder(l.Holder), l.Name, l.Slots, l.Slot, l.Kind, l.Fence, l.Grant, l.Released}))
	}
	for _, e := range b.Events {
		args = append(args, e.ID, micros(e.Ago),
			row(wireEvent{wireHolder(e.Holder), e.ID, e.Kind, e.Name, e.Slot, e.Fence, cut(e.Text)}))
	}
	for _, r := range b.Runs {
		args = append(args, r.ID, timerKey(r.Timer), micros(r.EndedAgo), rowOfRun(r))
	}
	for _, t := range b.Timers {
		succeeded := any("")
		if t.SucceededAgo != nil {
			succeeded = micros(*t.SucceededAgo)
		}
		t.Last.ID = ""
		args = append(args, timerKey(t.Last.Timer), micros(t.Last.EndedAgo), succeeded, micros(t.FailingFor),
			micros(t.FailedAgo), t.Failures, cmp.Or(t.Outcomes, "?"), cluster.OutcomesPerTimer, rowOfRun(t.Last))
	}
	for _, k := range b.Buckets {
		s := spanOf(k.Interval)
		args = append(args, timerKey(k.Timer), s.width.Microseconds(), micros(k.Ago), s.letter,
			s.span.Microseconds(), s.keep.Microseconds(), max(0, k.Bin), k.Runs, k.Failed,
			max(0, micros(k.Took)), max(0, micros(k.LongestTook)))
	}
	return args
}

func rowOfRun(r cluster.Run) string {
	var tick *int64
	if !r.Tick.IsZero() {
		tick = new(r.Tick.UnixMicro())
	}
	return row(wireRun{wireHolder(r.Holder), r.ID, r.Timer, tick, r.Slot, r.Fence, r.Took, r.Outcome, cut(r.Err),
		cutTo(r.Stack, maxStack), r.Attempts, r.By})
}

var errReply = errors.New("redisregistry: unexpected reply to a script of the registry")

func instant(reply any) (int64, error) {
	text, ok := reply.(string)
	n, err := strconv.ParseInt(text, 10, 64)
	if !ok || err != nil {
		return 0, errReply
	}
	return n, nil
}

// parse splits a row into n words and decodes the JSON that follows. It reports false for a row
// that this package did not write, so that one foreign row does not hide all others.
func parse(value any, n int, fields any) (words []string, ok bool) {
	text, ok := value.(string)
	if !ok { // the row was deleted after its ID was read
		return nil, false
	}
	words = strings.SplitN(text, " ", n+1)
	if len(words) != n+1 || json.Unmarshal([]byte(words[n]), fields) != nil {
		return nil, false
	}
	return words[:n], true
}

// until returns how long after now an instant is. It is negative for an instant in the past.
func until(now int64, at string) time.Duration {
	n, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(n-now) * time.Microsecond
}

// since returns how long before now an instant was. It is never negative, even if the server's
// clock was set back.
func since(now int64, at string) time.Duration { return max(0, -until(now, at)) }

func parseRows(reply []any) (rows cluster.Rows, err error) {
	if len(reply) != 7 {
		return rows, errReply
	}
	now, err := instant(reply[0])
	if err != nil {
		return rows, err
	}
	var parts [6][]any
	for i := range parts {
		part, ok := reply[1+i].([]any)
		if !ok {
			return rows, errReply
		}
		parts[i] = part
	}
	details := map[any]string{}
	for i := 1; i < len(parts[1]); i += 2 {
		details[parts[1][i-1]], _ = parts[1][i].(string)
	}
	for i := 1; i < len(parts[0]); i += 2 {
		var h wireHost
		detail, known := unpack(details[parts[0][i-1]])
		if w, ok := parse(parts[0][i], 3, &h); ok && known {
			rows.Hosts = append(rows.Hosts, cluster.HostRow{SeenAgo: since(now, w[0]),
				Heartbeat: cluster.Heartbeat{Holder: dlock.Holder(h.wireHolder), Environment: h.Environment,
					AppVersion: h.AppVersion, Version: h.Version, UpFor: since(now, w[1]),
					ClockOffset: time.Duration(h.Offset), TTL: h.TTL, Detail: detail, Left: h.Left}})
		}
	}
	for _, value := range parts[2] {
		var l wireLease
		if w, ok := parse(value, 6, &l); ok {
			rows.Leases = append(rows.Leases, cluster.LeaseRecord{Name: l.Name, Slots: l.Slots, Slot: l.Slot,
				Kind: l.Kind, Holder: dlock.Holder(l.wireHolder), Fence: l.Fence, Grant: l.Grant,
				HeldFor: since(now, w[0]), RenewedAgo: since(now, w[1]), ExpiresIn: until(now, w[2]),
				Released: l.Released})
		}
	}
	for _, value := range parts[3] {
		var e wireEvent
		if w, ok := parse(value, 1, &e); ok {
			rows.Events = append(rows.Events, cluster.Event{ID: e.EventID, Kind: e.Kind, Name: e.Name, Slot: e.Slot,
				Fence: e.Fence, Holder: dlock.Holder(e.wireHolder), Text: e.Text, Ago: since(now, w[0])})
		}
	}
	rows.Runs = parseRuns(parts[4], now)
	rows.Timers = parseRecords(parts[5], now)
	return rows, nil
}

func parseRecords(values []any, now int64) (list []cluster.TimerRecord) {
	for _, value := range values {
		var r wireRun
		w, ok := parse(value, 6, &r)
		if !ok {
			continue
		}
		failures, err := strconv.Atoi(w[4])
		if err != nil {
			continue
		}
		t := cluster.TimerRecord{Last: r.run(since(now, w[0])), Failures: failures, Outcomes: w[5]}
		if w[1] != "0" {
			t.SucceededAgo = new(since(now, w[1]))
		}
		if failures > 0 {
			t.FailingFor, t.FailedAgo = since(now, w[2]), since(now, w[3])
		}
		list = append(list, t)
	}
	return list
}

func parseBuckets(timer string, reply any, now int64) (list []cluster.Bucket) {
	values, _ := reply.([]any)
	for _, value := range values {
		text, _ := value.(string)
		for _, s := range spans {
			rest, ok := strings.CutPrefix(text, s.letter)
			if !ok {
				continue
			}
			for bucket := range strings.SplitSeq(rest, ";") {
				var n, took, longest int64
				b := cluster.Bucket{Timer: timer, Interval: s.width}
				if _, err := fmt.Sscanf(bucket, "%d,%d,%d,%d,%d,%d", &n, &b.Bin, &b.Runs, &b.Failed, &took,
					&longest); err != nil {
					continue
				}
				b.Ago = time.Duration(now-n*s.width.Microseconds()) * time.Microsecond
				b.Took, b.LongestTook = time.Duration(took)*time.Microsecond, time.Duration(longest)*time.Microsecond
				list = append(list, b)
			}
		}
	}
	return list
}

func parseRuns(reply any, now int64) (runs []cluster.Run) {
	values, _ := reply.([]any)
	for _, value := range values {
		var r wireRun
		w, ok := parse(value, 1, &r)
		if !ok {
			continue
		}
		runs = append(runs, r.run(since(now, w[0])))
	}
	return runs
}

func (w *wireRun) run(endedAgo time.Duration) cluster.Run {
	run := cluster.Run{ID: w.RunID, Timer: w.Timer, Holder: dlock.Holder(w.wireHolder), Slot: w.Slot, Fence: w.Fence,
		EndedAgo: endedAgo, Took: w.Took, Outcome: w.Outcome, Err: w.Err, Stack: w.Stack,
		Attempts: w.Attempts, By: w.By}
	if w.Tick != nil {
		run.Tick = time.UnixMicro(*w.Tick)
	}
	return run
}
