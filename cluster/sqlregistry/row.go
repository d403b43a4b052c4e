package sqlregistry

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/guard"
)

// The values of the column sort.
const (
	sortHost  = "host"
	sortLease = "lease"
	sortEvent = "event"
	sortRun   = "run"
	// Rows of these three sorts are written only if the batch is counted. For the last two, the
	// statement completes the ID and sets happened_at to the time at which the bucket began.
	sortTimer  = "timer"
	sortFine   = "fine"
	sortCoarse = "coarse"
)

// A row is a row of the table, as statements take and return it. Times are ages in µs, and
// durations are in µs.
type row struct {
	Sort     string `json:"sort"`
	ID       string `json:"id"`
	Name     string `json:"lock_name"`
	Node     string `json:"node_id"` // not read
	Machine  string `json:"machine"`
	PID      int64  `json:"pid"`
	HolderID string `json:"holder_id"`
	Kind     string `json:"kind"`
	Slot     int32  `json:"slot"`
	Slots    int32  `json:"slots"`
	Fence    int64  `json:"fence"`
	Grant    string `json:"grant_id"`

	Acquired *int64 `json:"acquired,omitempty"`
	Renewed  *int64 `json:"renewed,omitempty"`
	Expires  *int64 `json:"expires,omitempty"`
	Released *int64 `json:"released,omitempty"`
	Happened *int64 `json:"happened,omitempty"`

	TTL    *int64  `json:"ttl,omitempty"`
	UpFor  *int64  `json:"up_for,omitempty"`
	Data   string  `json:"data"`
	Detail *string `json:"detail,omitempty"`
}

// columns returns the scan destinations for {columns}.
func (r *row) columns() []any {
	return []any{&r.Sort, &r.ID, &r.Name, &r.Machine, &r.PID, &r.HolderID, &r.Kind, &r.Slot, &r.Slots, &r.Fence,
		&r.Grant, &r.Acquired, &r.Renewed, &r.Expires, &r.Released, &r.Happened, &r.TTL, &r.UpFor, &r.Data, &r.Detail}
}

// These types are the contents of the column data. Other versions may write more or fewer fields.
type (
	hostData struct {
		Environment string        `json:"environment,omitempty"`
		AppVersion  string        `json:"app_version,omitempty"`
		Version     string        `json:"version,omitempty"`
		ClockOffset int64         `json:"clock_offset_ns,omitempty"`
		TTL         time.Duration `json:"ttl_ns,omitempty"` // the column is rounded and serves Sweep only
	}
	eventData struct {
		Text string `json:"text,omitempty"`
	}
	runData struct {
		Tick     time.Time     `json:"tick,omitzero"`
		Took     time.Duration `json:"took_ns,omitempty"`
		Err      string        `json:"err,omitempty"`
		Stack    string        `json:"stack,omitempty"`
		Attempts int           `json:"attempts,omitempty"`
		By       string        `json:"by,omitempty"`
	}
)

// These are the maximum lengths of text in bytes. The columns on MySQL and SQL Server have these
// lengths.
const (
	maxID    = 255
	maxName  = 512
	maxWords = 255  // a kind, a version, a host
	maxText  = 4096 // an error, or the text of an event
)

// bucketShards is the number of rows over which a bucket of the fleet is spread. Each host that
// writes a run updates one of them. With a single row, all hosts would wait for each other.
const bucketShards = 8

// counted reports whether a row is written only if the batch is counted.
func (r *row) counted() bool { return r.Sort == sortTimer || r.bucket() }

func (r *row) bucket() bool { return r.Sort == sortFine || r.Sort == sortCoarse }

// rowsOf returns the rows of a batch in the order of the primary key. All hosts use this order, so
// no two of them deadlock. Each row occurs once, because a Postgres statement that updates a row
// twice fails.
func rowsOf(b cluster.Batch) []row {
	var rows []row
	if b.Host != nil {
		rows = append(rows, rowOfHost(*b.Host, b.Number))
	}
	if b.Host != nil && b.Number > 0 {
		for _, t := range b.Timers {
			rows = append(rows, rowOfRecord(t))
		}
		hash := sha256.Sum256([]byte(hostID(b.Host.Holder)))
		for _, k := range b.Buckets {
			rows = append(rows, rowOfBucket(k, int(hash[0])%bucketShards))
		}
	}
	for _, l := range b.Leases {
		rows = append(rows, rowOfLease(l))
	}
	for _, e := range b.Events {
		rows = append(rows, rowOfEvent(e))
	}
	for _, r := range b.Runs {
		rows = append(rows, rowOfRun(r))
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		order := cmp.Or(cmp.Compare(a.Sort, b.Sort), cmp.Compare(a.ID, b.ID))
		if order == 0 && a.bucket() { // the end of its ID is the time of the bucket
			order = cmp.Compare(*b.Happened, *a.Happened)
		}
		return order
	})
	once := rows[:0]
	for _, r := range rows {
		last := len(once) - 1
		switch {
		case last < 0 || once[last].Sort != r.Sort || once[last].ID != r.ID || r.bucket():
			once = append(once, r)
		case replaces(r, once[last]):
			once[last] = r
		}
	}
	return once
}

// replaces decides which of two rows in a batch counts, by the rule that the statements apply to
// rows of the table.
func replaces(r, old row) bool {
	switch {
	case r.Sort != sortLease:
		return false
	case r.Machine == old.Machine && r.PID == old.PID && r.HolderID == old.HolderID && r.Grant == old.Grant:
		return old.Released == nil
	case r.Fence != 0 && old.Fence != 0:
		return r.Fence > old.Fence
	}
	return *r.Acquired < *old.Acquired
}

func rowOfHost(h cluster.Heartbeat, number int64) row {
	r := row{Sort: sortHost, ID: hostID(h.Holder), Fence: number, Acquired: micros(h.UpFor), Renewed: new(int64),
		TTL: micros(h.TTL), UpFor: micros(h.UpFor)}
	setHolder(&r, h.Holder)
	if h.Left {
		r.Released = new(int64)
	}
	if h.Detail != nil {
		detail := guard.Storable(string(h.Detail))
		r.Detail = &detail
	}
	setData(&r, hostData{Environment: cut(h.Environment, maxWords), AppVersion: cut(h.AppVersion, maxWords),
		Version: cut(h.Version, maxWords), ClockOffset: int64(h.ClockOffset), TTL: h.TTL})
	return r
}

func rowOfLease(l cluster.LeaseRecord) row {
	id := ":" + l.Name
	if l.Slots != 0 {
		id = strconv.Itoa(l.Slot) + id
	}
	r := row{Sort: sortLease, ID: key(id), Name: cut(l.Name, maxName), Kind: cut(l.Kind, maxWords),
		Slot: int32(l.Slot), Slots: int32(l.Slots), Fence: int64(l.Fence), Grant: key(l.Grant),
		Acquired: micros(l.HeldFor), Renewed: micros(l.RenewedAgo), Expires: micros(-l.ExpiresIn)}
	setHolder(&r, l.Holder)
	if l.Released {
		r.Released = micros(l.RenewedAgo)
	}
	setData(&r, struct{}{})
	return r
}

func rowOfEvent(e cluster.Event) row {
	r := row{Sort: sortEvent, ID: key(e.ID), Name: cut(e.Name, maxName), Kind: cut(string(e.Kind), maxWords),
		Slot: int32(e.Slot), Fence: int64(e.Fence), Happened: micros(e.Ago)}
	setHolder(&r, e.Holder)
	setData(&r, eventData{cut(e.Text, maxText)})
	return r
}

// rowOfRecord returns the row of a timer: its last run, and the summary of all its runs.
func rowOfRecord(t cluster.TimerRecord) row {
	r := rowOfRun(t.Last)
	r.Sort, r.ID, r.Happened, r.Renewed = sortTimer, key(t.Last.Timer), nil, r.Happened
	r.Grant, r.UpFor = t.Outcomes, new(int64(t.Failures))
	if t.SucceededAgo != nil {
		r.Released = micros(*t.SucceededAgo)
	}
	if t.Failures > 0 {
		r.Acquired, r.Expires = micros(t.FailingFor), micros(t.FailedAgo)
	}
	return r
}

func recordOf(r *row) cluster.TimerRecord {
	t := cluster.TimerRecord{Last: runOf(r), Outcomes: r.Grant}
	t.Last.ID, t.Last.EndedAgo = "", max(0, duration(r.Renewed))
	if r.Released != nil {
		t.SucceededAgo = new(duration(r.Released))
	}
	if r.UpFor != nil && *r.UpFor > 0 {
		t.Failures, t.FailingFor, t.FailedAgo = int(*r.UpFor), duration(r.Acquired), duration(r.Expires)
	}
	return t
}

// rowOfBucket uses some columns for other numbers: see the package documentation.
func rowOfBucket(b cluster.Bucket, shard int) row {
	r := row{Sort: sortFine, Name: cut(b.Timer, maxName), Slots: int32(b.Interval / time.Minute),
		Happened: micros(b.Ago), Slot: int32(b.Bin),
		Fence: int64(b.Runs), PID: int64(b.Failed), UpFor: micros(b.Took), TTL: micros(b.LongestTook), Data: "{}"}
	if b.Interval == cluster.CoarseBucket {
		r.Sort = sortCoarse
	}
	if b.Timer == "" {
		r.ID = strconv.Itoa(shard)
	} else { // the number of the bucket is appended
		r.ID = strconv.Itoa(b.Bin) + short(":"+b.Timer, maxID-20)
	}
	return r
}

// bucketsOf returns the buckets of rows, and adds up those of one instant and bin.
func bucketsOf(timer string, list []row) (buckets []cluster.Bucket) {
	type key struct {
		sort     string
		happened int64
		bin      int32
	}
	at := map[key]int{}
	for i := range list {
		r := &list[i]
		if !r.bucket() || r.Happened == nil || r.UpFor == nil || r.TTL == nil {
			continue
		}
		k := key{r.Sort, *r.Happened, r.Slot}
		n, ok := at[k]
		if !ok {
			n = len(buckets)
			at[k] = n
			buckets = append(buckets, cluster.Bucket{Timer: timer, Interval: time.Duration(r.Slots) * time.Minute,
				Bin: int(r.Slot), Ago: duration(r.Happened)})
		}
		b := &buckets[n]
		b.Runs += int(r.Fence)
		b.Failed += int(r.PID)
		b.Took += time.Duration(*r.UpFor) * time.Microsecond
		b.LongestTook = max(b.LongestTook, duration(r.TTL))
	}
	return buckets
}

func rowOfRun(run cluster.Run) row {
	r := row{Sort: sortRun, ID: key(run.ID), Name: cut(run.Timer, maxName), Kind: cut(run.Outcome, maxWords),
		Slot: int32(run.Slot), Fence: int64(run.Fence), Happened: micros(run.EndedAgo)}
	setHolder(&r, run.Holder)
	setData(&r, runData{Tick: run.Tick.UTC(), Took: run.Took, Err: cut(run.Err, maxText),
		Stack: cut(run.Stack, maxText), Attempts: run.Attempts, By: cut(run.By, maxWords)})
	return r
}

// escaped escapes slashes and percent signs.
var escaped = strings.NewReplacer("%", "%25", "/", "%2F")

// hostID returns host/pid/id. Slashes in host are escaped, so that two holders never share an ID.
func hostID(h dlock.Holder) string {
	return key(fmt.Sprintf("%s/%d/%s", escaped.Replace(h.Host), h.PID, h.ID))
}

func setHolder(r *row, h dlock.Holder) {
	r.Machine, r.PID, r.HolderID = cut(h.Host, maxWords), int64(h.PID), cut(h.ID, maxWords)
	r.Node = r.Machine + "/" + strconv.Itoa(h.PID)
}

// setData sets the column data. If data cannot be encoded as JSON, for example a tick after the
// year 9999, setData stores an empty object, so that a single row does not fail the batch.
func setData(r *row, data any) {
	text, err := json.Marshal(data)
	if err != nil {
		text = []byte("{}")
	}
	r.Data = string(text)
}

func holderOf(r *row) dlock.Holder {
	return dlock.Holder{Host: r.Machine, PID: int(r.PID), ID: r.HolderID}
}

// addTo adds a row to rows. It skips a row of an unknown sort, which another version may have
// written.
func addTo(rows *cluster.Rows, r *row) {
	switch r.Sort {
	case sortHost:
		if r.Detail == nil { // deleted during its heartbeat; the host sends the detail again
			return
		}
		var d hostData
		_ = json.Unmarshal([]byte(r.Data), &d)
		rows.Hosts = append(rows.Hosts, cluster.HostRow{
			Heartbeat: cluster.Heartbeat{Holder: holderOf(r), Environment: d.Environment, AppVersion: d.AppVersion,
				Version: d.Version, UpFor: duration(r.Acquired), ClockOffset: time.Duration(d.ClockOffset), TTL: d.TTL,
				Detail: json.RawMessage(*r.Detail), Left: r.Released != nil},
			SeenAgo: max(0, duration(r.Renewed)),
		})
	case sortLease:
		rows.Leases = append(rows.Leases, cluster.LeaseRecord{Name: r.Name, Slots: int(r.Slots), Slot: int(r.Slot),
			Kind: r.Kind, Holder: holderOf(r), Fence: dlock.Fence(r.Fence), Grant: r.Grant,
			HeldFor: duration(r.Acquired), RenewedAgo: duration(r.Renewed), ExpiresIn: -duration(r.Expires),
			Released: r.Released != nil})
	case sortEvent:
		var d eventData
		_ = json.Unmarshal([]byte(r.Data), &d)
		rows.Events = append(rows.Events, cluster.Event{ID: r.ID, Kind: cluster.EventKind(r.Kind), Name: r.Name,
			Slot: int(r.Slot), Fence: dlock.Fence(r.Fence), Holder: holderOf(r), Text: d.Text,
			Ago: duration(r.Happened)})
	case sortRun:
		rows.Runs = append(rows.Runs, runOf(r))
	case sortTimer:
		rows.Timers = append(rows.Timers, recordOf(r))
	}
}

func runOf(r *row) cluster.Run {
	var d runData
	_ = json.Unmarshal([]byte(r.Data), &d)
	return cluster.Run{ID: r.ID, Timer: r.Name, Holder: holderOf(r), Tick: d.Tick, Slot: int(r.Slot),
		Fence: dlock.Fence(r.Fence), EndedAgo: duration(r.Happened), Took: d.Took, Outcome: r.Kind, Err: d.Err,
		Stack: d.Stack, Attempts: d.Attempts, By: d.By}
}

// later returns rows with their ages increased by the time since the call was made.
func later(rows []row, by time.Duration) []row {
	sent := slices.Clone(rows)
	for i := range sent {
		r := &sent[i]
		for _, ago := range []**int64{&r.Acquired, &r.Renewed, &r.Expires, &r.Released, &r.Happened} {
			if *ago != nil {
				then := **ago + by.Microseconds()
				*ago = &then
			}
		}
	}
	return sent
}

// maxAge bounds durations: no row is older, and every database can compute with it.
const maxAge = 50 * 365 * 24 * time.Hour

func micros(d time.Duration) *int64 {
	us := min(max(d, -maxAge), maxAge).Microseconds()
	return &us
}

func duration(us *int64) time.Duration {
	if us == nil {
		return 0
	}
	limit := (2 * maxAge).Microseconds()
	return time.Duration(min(max(*us, -limit), limit)) * time.Microsecond
}

// key returns an ID for a text: the text itself or, if it is long, its beginning and its hash.
func key(text string) string { return short(text, maxID) }

// short is like key, for IDs of another maximum length.
func short(text string, maxLen int) string {
	if text := guard.Storable(text); len(text) <= maxLen {
		return text
	}
	hash := sha256.Sum256([]byte(text))
	return cut(text, maxLen-33) + fmt.Sprintf("#%x", hash[:16])
}

// cut returns storable text of at most maxLen bytes. A text that was longer ends with ….
func cut(text string, maxLen int) string {
	text = guard.Storable(text)
	if len(text) <= maxLen {
		return text
	}
	const dots = "…"
	end := maxLen - len(dots)
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + dots
}

// sortRows sorts events and runs newest first, and hosts and leases by ID.
func sortRows(list []row) {
	slices.SortFunc(list, func(a, b row) int {
		if a.Happened == nil || b.Happened == nil {
			return cmp.Or(cmp.Compare(a.Sort, b.Sort), cmp.Compare(a.ID, b.ID))
		}
		return cmp.Or(cmp.Compare(a.Sort, b.Sort), cmp.Compare(*a.Happened, *b.Happened), cmp.Compare(b.ID, a.ID))
	})
}
