package leasestate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/startlog"
)

// Format is the version of the document format. A host refuses documents with another format or
// with unknown fields, because writing them back would drop the data of a newer version.
const Format = 1

var (
	// ErrForeign matches errors about documents that are damaged or were written by another
	// program.
	ErrForeign = errors.New("it is damaged or was written by another program")
	// ErrFormat matches errors about documents in another format.
	ErrFormat = errors.New("another version of tickslot wrote it")
)

// empty is the body of an empty state.
const empty = "{}"

// A head is a document whose body is not decoded.
type head struct {
	Format int             `json:"tickslot"`
	At     int64           `json:"at"` // earliest time of the write
	State  json.RawMessage `json:"state"`
}

// Document returns the document that holds a state's body and the time of the write.
func Document(at time.Time, body []byte) []byte {
	text := strconv.AppendInt([]byte(beforeAt), nanos(at), 10)
	return append(append(append(text, beforeBody...), body...), '}')
}

// beforeAt and beforeBody are the fixed parts of Document's output.
const beforeAt, beforeBody = `{"tickslot":1,"at":`, `,"state":`

// ParseDocument returns the time at which a document was written and the body of its state. Empty
// text is the document of an empty state.
func ParseDocument(text []byte) (at time.Time, body []byte, err error) {
	if len(text) == 0 {
		return time.Time{}, []byte(empty), nil
	}
	if rest, ours := bytes.CutPrefix(text, []byte(beforeAt)); ours { // written by Document and returned unchanged
		number, rest, _ := bytes.Cut(rest, []byte(beforeBody))
		body, whole := bytes.CutSuffix(rest, []byte("}"))
		if n, err := strconv.ParseInt(string(number), 10, 64); err == nil && whole {
			return instant(n), body, nil
		}
	}
	var h head // some servers reformat JSON
	if err := json.Unmarshal(text, &h); err != nil || h.Format < 1 {
		return time.Time{}, nil, ErrForeign
	}
	if h.Format != Format {
		return time.Time{}, nil, fmt.Errorf("%w, in format %d; this version knows %d", ErrFormat, h.Format, Format)
	}
	return instant(h.At), h.State, nil
}

// The fields of a body. Instants are nanoseconds since 1970; 0 means none.
type (
	body struct {
		Slots     []bodySlot  `json:"slots,omitempty"`
		Declared  int         `json:"declared,omitempty"`
		Fence     int64       `json:"fence,omitempty"`
		Tick      int64       `json:"tick,omitempty"` // in microseconds
		Starts    int         `json:"starts,omitempty"`
		Schedule  int64       `json:"schedule,omitempty"`
		Asked     int64       `json:"asked,omitempty"`
		Since     int64       `json:"since,omitempty"`
		Released  int64       `json:"released,omitempty"`
		Succeeded int64       `json:"succeeded,omitempty"`
		Claimer   *bodyHolder `json:"claimer,omitempty"`
		Control   *control    `json:"control,omitempty"`
		Rated     string      `json:"rated,omitempty"`
	}
	bodySlot struct {
		Token    string        `json:"token,omitempty"`
		Holder   *bodyHolder   `json:"holder,omitempty"`
		Fence    int64         `json:"fence,omitempty"`
		Acquired int64         `json:"acquired,omitempty"`
		Renewed  int64         `json:"renewed,omitempty"`
		Expires  int64         `json:"expires,omitempty"`
		Released int64         `json:"released,omitempty"`
		Revoked  *driver.Cause `json:"revoked,omitempty"`
	}
	bodyHolder struct {
		Host string `json:"host,omitempty"`
		PID  int    `json:"pid,omitempty"`
		ID   string `json:"id,omitempty"`
	}
	control struct {
		Version int64         `json:"version"`
		Pause   *driver.Cause `json:"pause,omitempty"`
		Paused  int64         `json:"paused,omitempty"`
		Until   int64         `json:"until,omitempty"`
		Resumed int64         `json:"resumed,omitempty"`
		Limit   *int          `json:"limit,omitempty"`
		LimitBy *driver.Cause `json:"limit_by,omitempty"`
		Trigger *driver.Cause `json:"trigger,omitempty"`
		At      int64         `json:"at,omitempty"`
		Value   string        `json:"value,omitempty"`
	}
)

// Body returns the state as text. Equal states have equal bodies. The time of last use is left out,
// so that a refusal does not change the body.
func (s *State) Body() ([]byte, error) {
	b := body{Declared: s.declared, Fence: int64(s.fence), Tick: s.tick, Starts: s.starts, Schedule: s.schedule,
		Asked: s.asked.schedule, Since: nanos(s.asked.since), Released: nanos(s.releasedAt),
		Succeeded: nanos(s.succeededAt), Claimer: someHolder(s.claimer), Rated: s.rated.String()}
	for _, sl := range s.slots {
		b.Slots = append(b.Slots, bodySlot{Token: sl.token, Holder: someHolder(sl.holder), Fence: int64(sl.fence),
			Acquired: nanos(sl.acquiredAt), Renewed: nanos(sl.renewedAt), Expires: nanos(sl.expiresAt),
			Released: nanos(sl.releasedAt), Revoked: sl.revoked})
	}
	for n := len(b.Slots); n > 0 && b.Slots[n-1] == (bodySlot{}); n-- {
		b.Slots = b.Slots[:n-1] // the slot was considered but never taken
	}
	if o := s.overrides; o.version != 0 {
		b.Control = &control{Version: o.version, Pause: someCause(o.pause), Paused: nanos(o.pausedAt),
			Until: nanos(o.until), Resumed: nanos(o.resumedAt), Trigger: someCause(o.trigger),
			At: nanos(o.at), Value: o.value}
		if o.limit != nil {
			b.Control.Limit, b.Control.LimitBy = &o.limit.Slots, &o.limit.Cause
		}
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false) // escaping could push a value over the store's size limit
	err := enc.Encode(b)
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), err
}

// Parse decodes a body.
func Parse(text []byte) (*State, error) {
	var b body
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&b); err != nil {
		return nil, fmt.Errorf("%w, or by a newer version of tickslot: %v", ErrForeign, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) || len(b.Slots) > driver.MaxSlots {
		return nil, ErrForeign
	}
	rated, err := startlog.Parse(b.Rated)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrForeign, err)
	}
	s := &State{declared: b.Declared, fence: driver.Fence(b.Fence), tick: b.Tick,
		starts: b.Starts, schedule: b.Schedule, asked: asked{b.Asked, instant(b.Since)},
		releasedAt: instant(b.Released), succeededAt: instant(b.Succeeded), claimer: b.Claimer.holder(), rated: rated}
	for _, sl := range b.Slots {
		s.slots = append(s.slots, slot{token: sl.Token, holder: sl.Holder.holder(), fence: driver.Fence(sl.Fence),
			acquiredAt: instant(sl.Acquired), renewedAt: instant(sl.Renewed), expiresAt: instant(sl.Expires),
			releasedAt: instant(sl.Released), revoked: sl.Revoked})
	}
	if c := b.Control; c != nil {
		s.overrides = overrides{version: c.Version, pause: cause(c.Pause), pausedAt: instant(c.Paused),
			until: instant(c.Until), resumedAt: instant(c.Resumed), trigger: cause(c.Trigger),
			at: instant(c.At), value: c.Value}
		if c.Limit != nil {
			s.overrides.limit = &driver.LimitOverride{Slots: *c.Limit, Cause: cause(c.LimitBy)}
		}
	}
	return s, nil
}

func nanos(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return at.UnixNano()
}

func instant(nanos int64) time.Time {
	if nanos == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanos)
}

func someHolder(h driver.Holder) *bodyHolder {
	if h == (driver.Holder{}) {
		return nil
	}
	return &bodyHolder{h.Host, h.PID, h.ID}
}

func (b *bodyHolder) holder() driver.Holder {
	if b == nil {
		return driver.Holder{}
	}
	return driver.Holder{Host: b.Host, PID: b.PID, ID: b.ID}
}

func someCause(c driver.Cause) *driver.Cause {
	if c == (driver.Cause{}) {
		return nil
	}
	return &c
}

func cause(c *driver.Cause) driver.Cause {
	if c == nil {
		return driver.Cause{}
	}
	return *c
}
