package redislock

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
)

// This file checks a server's answer like any input. A malformed answer is an error of the store,
// not a panic.

// words are several values in one string. Separate values would cost client and server several
// times as much.
type words string

func (w *words) next() string {
	word, rest, _ := strings.Cut(string(*w), " ")
	*w = words(rest)
	return word
}

func (w *words) number() int64 {
	n, _ := strconv.ParseInt(w.next(), 10, 64)
	return n
}

// parseAnswer parses an answer for one name: words, and then optionally a line break and a text.
func parseAnswer(v any) (w words, text string, err error) {
	said, ok := v.(string)
	if !ok {
		return "", "", fmt.Errorf("%w: %.20q", errAnswer, fmt.Sprintf("%T", v))
	}
	said, text, more := strings.Cut(said, "\n")
	if more && said == "error" {
		return "", "", errors.New(text)
	}
	return words(said), text, nil
}

// parseAcquire parses acquire.lua's answer to one attempt. now is the server's time in µs.
func parseAcquire(req driver.Request, now int64, answer any) (driver.Grant, error) {
	w, text, err := parseAnswer(answer)
	if err != nil {
		return driver.Grant{}, err
	}
	status := w.next()
	reason := driver.Reason(status)
	info, sane := w.info(now)
	if !sane {
		return driver.Grant{}, fmt.Errorf("%w: %s", errAnswer, excerpt(status))
	}
	if status == "ok" {
		g, sane := w.granted(driver.SemaphoreSpec{Name: req.Name, Slots: req.Slots}, req.Token)
		g.Info = info
		for _, l := range req.Shared {
			info, known := w.info(now)
			part, granted := w.granted(l, req.Token)
			part.Info = info
			g.Shared = append(g.Shared, part)
			sane = sane && known && granted
		}
		if !sane || w != "" {
			return driver.Grant{}, fmt.Errorf("%w: %s", errAnswer, excerpt(status))
		}
		return g, nil
	}
	no := &driver.NotAcquiredError{Name: req.Name, Reason: reason, Slots: req.Slots, Info: info}
	switch reason {
	case driver.ReasonTickLate, driver.ReasonTickAhead, driver.ReasonTickFirst, driver.ReasonTickHeld:
	case driver.ReasonTickTaken:
		no.Holder = parseClaimer(text)
	case driver.ReasonTickEarly:
		no.ExpiresIn = max(time.Microsecond, microseconds(w.number()-now))
	case driver.ReasonPaused:
		w.paused(no, now, text)
	case driver.ReasonFull, driver.ReasonQuarantine:
		w.full(no, now, text)
	case driver.ReasonLimitFull, driver.ReasonLimitRate, "limit_paused":
		i := w.number()
		if no.SharedInfo, sane = w.info(now); !sane || i < 0 || i >= int64(len(req.Shared)) {
			return driver.Grant{}, fmt.Errorf("%w: %s", errAnswer, excerpt(status))
		}
		no.Shared = req.Shared[i]
		switch reason {
		case driver.ReasonLimitFull:
			w.full(no, now, text)
		case driver.ReasonLimitRate:
			no.ExpiresIn = max(time.Microsecond, microseconds(w.number()-now))
		default:
			no.Reason = driver.ReasonLimitFull
			w.paused(no, now, text)
		}
	default:
		return driver.Grant{}, fmt.Errorf("%w: %s", errAnswer, excerpt(status))
	}
	return driver.Grant{}, no
}

// info parses INFO. now is the server's time in µs. sane is false if the values are impossible.
func (w *words) info(now int64) (info driver.Info, sane bool) {
	info.DeclaredSlots = int(w.number())
	if success := w.number(); success > 0 && success <= now+driver.MaxTickAhead.Microseconds() {
		info.SuccessAge = max(time.Microsecond, microseconds(now-success))
	}
	info.Version, info.SlotLimit = w.number(), int(w.number())
	if info.Version >= maxMicros {
		info.Version = 0 // versions are never that large
	}
	return info, info.DeclaredSlots >= 0 && info.Version >= 0 && info.SlotLimit >= 0 &&
		info.SlotLimit <= driver.MaxSlots
}

// granted parses a slot, its fence, and whether its previous lease expired.
func (w *words) granted(l driver.SemaphoreSpec, token string) (g driver.Grant, sane bool) {
	slot, fence, expired := w.number(), w.number(), w.number()
	// After the limit was lowered, a repeated attempt may have a slot beyond it.
	sane = slot >= 0 && slot < driver.MaxSlots && (l.Slots > 0 || slot == 0) && fence > 0
	return driver.Grant{Name: l.Name, Slots: l.Slots, Slot: int(slot), Token: token, Fence: driver.Fence(fence),
		PreviousExpired: expired == 1}, sane
}

// full parses when the first lease ends and who holds it. text is the value of the lease's key.
func (w *words) full(no *driver.NotAcquiredError, now int64, text string) {
	no.ExpiresIn = microseconds(w.number()*1000 - now)
	if held, err := parseValue(text); err == nil && text != "" { // a slot with a malformed value is held, too
		no.Holder, no.HeldFor = held.holder(), microseconds(now-held.AcquiredAt*1000)
	}
}

// paused parses when a pause ends and who set it.
func (w *words) paused(no *driver.NotAcquiredError, now int64, text string) {
	if ends := w.number(); ends > 0 {
		no.ExpiresIn = max(time.Microsecond, microseconds(ends-now))
	}
	no.PausedBy, _ = parseOrigin(text) // a malformed origin does not end the pause
}

// parseExtend parses the answer of extend.lua.
func parseExtend(a []any, indexes []int, results []driver.Result) error {
	if len(a) == 0 {
		return fmt.Errorf("%w: %s", errAnswer, excerpt(a))
	}
	said, _ := a[0].(string)
	w, more := words(said), a[1:]
	text := func() (text string, err error) {
		if len(more) == 0 {
			return "", fmt.Errorf("%w: an outcome is not explained", errAnswer)
		}
		text, _ = more[0].(string)
		more = more[1:]
		return text, nil
	}
	for _, index := range indexes {
		r := driver.Result{Outcome: driver.GrantLost}
		switch outcome := w.next(); outcome {
		case "1":
			r.Outcome = driver.GrantOK
		case "0":
		case "revoked":
			origin, err := text()
			if err != nil {
				return err
			}
			revoked, err := parseOrigin(origin)
			if err != nil {
				r = driver.Result{Err: fmt.Errorf("%w: a lease was revoked: %w", errAnswer, err)}
			} else {
				r.RevokedBy = &revoked
			}
		case "error":
			why, err := text()
			if err != nil {
				return err
			}
			r = driver.Result{Err: errors.New(why)}
		default:
			return fmt.Errorf("%w: an outcome is %s", errAnswer, excerpt(outcome))
		}
		r.Info = driver.Info{DeclaredSlots: int(max(0, w.number())), Version: max(0, w.number())}
		results[index] = r
	}
	if w != "" {
		return fmt.Errorf("%w: more than %d leases", errAnswer, len(indexes))
	}
	return nil
}

// parseRelease parses release.lua's answer for each lease.
func parseRelease(a []any, indexes []int, results []driver.Result) error {
	for i, index := range indexes {
		w, _, err := parseAnswer(a[i])
		r := driver.Result{Err: err}
		if err == nil {
			switch outcome := w.next(); outcome {
			case "1":
				r.Outcome = driver.GrantOK
			case "0":
				r.Outcome = driver.GrantLost
			default:
				return fmt.Errorf("%w: an outcome is %s", errAnswer, excerpt(outcome))
			}
			r.Info.DeclaredSlots = int(max(0, w.number()))
		}
		results[index] = r
	}
	return nil
}

// parseControlState parses the answer of inspect.lua.
func parseControlState(name string, a []any) (driver.ControlState, error) {
	if len(a) != 10 {
		return driver.ControlState{}, fmt.Errorf("%w: %d values", errAnswer, len(a))
	}
	now, o := number(a[0]), driver.ControlState{Name: name, Version: max(0, number(a[1]))}
	var fault error
	origin := func(v any) driver.Cause {
		origin, err := parseOrigin(v)
		fault = cmp.Or(fault, err)
		return origin
	}
	if until := number(a[2]); until > now {
		o.Pause = &driver.Pause{Cause: origin(a[3]), For: microseconds(until - now)}
	}
	if slots := number(a[4]); slots > driver.MaxSlots {
		fault = cmp.Or(fault, fmt.Errorf("a limit of %d", slots))
	} else if a[4] != "" && slots >= 0 {
		o.Limit = &driver.LimitOverride{Cause: origin(a[5]), Slots: int(slots)}
	}
	if at := number(a[7]); at > 0 {
		o.Trigger = &driver.Trigger{Cause: origin(a[6]), At: time.UnixMicro(at), Age: microseconds(now - at)}
	}
	if tick := number(a[8]); tick > 0 {
		o.LastTick, o.ClaimedBy = time.UnixMicro(tick), parseClaimer(a[9])
		o.LastTickAhead = tick > now+driver.MaxTickAhead.Microseconds()
	}
	if fault != nil {
		return driver.ControlState{},
			fmt.Errorf("redislock: %w: the overrides of %s are malformed (update them, or delete the state key): %w",
				driver.ErrFault, name, fault)
	}
	return o, nil
}

// parseValueState parses the answer of inspect.lua that includes a value.
func parseValueState(answer any) (driver.ValueState, error) {
	a, _ := answer.([]any)
	if len(a) != 11 {
		return driver.ValueState{}, fmt.Errorf("%w: %d values", errAnswer, len(a))
	}
	text, isText := a[10].(string)
	v := driver.ValueState{Text: text, Version: max(0, number(a[1]))}
	if !isText || number(a[0]) <= 0 {
		return driver.ValueState{}, errAnswer
	}
	if v.Version > 0 {
		v.At = time.UnixMicro(number(a[0]))
	}
	return v, nil
}

// parseOrigin parses who made a change and why.
func parseOrigin(v any) (o driver.Cause, err error) {
	text, _ := v.(string)
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return driver.Cause{}, err
	}
	if err := o.Validate(); err != nil {
		return driver.Cause{}, err
	}
	return o, nil
}

// parseClaimer parses the members that name who last started a tick. It returns the zero Holder if
// they are missing or malformed.
func parseClaimer(v any) driver.Holder {
	text, _ := v.(string)
	held, err := parseValue("{" + text + "}")
	if err != nil {
		return driver.Holder{}
	}
	return held.holder()
}

func parseList(name string, mutex bool, a []any) ([]driver.LeaseInfo, error) {
	if len(a)%3 != 1 {
		return nil, fmt.Errorf("%w: %d values", errAnswer, len(a))
	}
	var list []driver.LeaseInfo
	now := number(a[0])
	for i := 1; i < len(a); i += 3 {
		value, _ := a[i+2].(string)
		held, err := parseValue(value)
		if err != nil {
			return nil, fmt.Errorf("redislock: %w: slot %d of %s does not hold a lease: %w", driver.ErrFault,
				number(a[i]), name, err)
		}
		l := held.info(now, number(a[i+1]))
		l.Name, l.Mutex, l.Slot = name, mutex, int(number(a[i]))
		list = append(list, l)
	}
	slices.SortFunc(list, func(a, b driver.LeaseInfo) int { return a.Slot - b.Slot })
	return list, nil
}

// stored is the value of a lease's key, without its token.
type stored struct {
	Fence      int64  `json:"fence"`
	AcquiredAt int64  `json:"acquired_at"` // in ms, by the server's clock
	Host       string `json:"host"`
	PID        int    `json:"pid"`
	ID         string `json:"id"`
	TTL        int64  `json:"ttl"` // in ms, from the grant or the last extension
}

func (s stored) holder() driver.Holder { return driver.Holder{Host: s.Host, PID: s.PID, ID: s.ID} }

func parseValue(value string) (v stored, err error) {
	err = json.Unmarshal([]byte(value), &v)
	return v, err
}

// excerpt returns only the beginning of an answer, because the whole may contain a token.
func excerpt(v any) string { return fmt.Sprintf("%.20q", fmt.Sprint(v)) }

// number converts an integer or a string from a script. For any other value it returns 0.
func number(v any) int64 {
	switch v := v.(type) {
	case int64:
		return v
	case string:
		n, _ := strconv.ParseInt(v, 10, 64)
		return n
	}
	return 0
}

// maxMicros is longer than any real age, and fits into a time.Duration.
const maxMicros = 1 << 53

func microseconds(n int64) time.Duration {
	return time.Duration(min(max(0, n), maxMicros)) * time.Microsecond
}

func milliseconds(n int64) time.Duration {
	return time.Duration(min(max(0, n), maxMicros/1_000)) * time.Millisecond
}
