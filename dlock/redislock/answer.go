package redislock

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// What a server answers is checked like any input: nonsense is an error of the store, not a panic.

func parseAcquire(req dlock.Request, a []any) (dlock.Grant, error) {
	if len(a) < 3 {
		return dlock.Grant{}, fmt.Errorf("%w: %s", errAnswer, outline(a))
	}
	news := dlock.News{Slots: int(number(a[1])), Success: microseconds(number(a[2]))}
	verdict, _ := a[0].(string)
	switch reason := dlock.Reason(verdict); {
	case verdict == "ok" && len(a) == 6:
		slot, fence := number(a[3]), number(a[4])
		if slot < 0 || slot >= int64(max(req.Slots, 1)) || fence <= 0 {
			return dlock.Grant{}, fmt.Errorf("%w: %s", errAnswer, outline(a))
		}
		return dlock.Grant{Name: req.Name, Slots: req.Slots, Slot: int(slot), Token: req.Token, Fence: dlock.Fence(fence),
			News: news, Abandoned: number(a[5]) == 1}, nil
	case reason == dlock.TickTaken || reason == dlock.TickLate || reason == dlock.TickAhead:
		return dlock.Grant{}, &dlock.NotAcquiredError{Name: req.Name, Reason: reason, Slots: req.Slots, News: news}
	case (reason == dlock.Full || reason == dlock.Quarantine) && len(a) == 6:
		now, ends := number(a[3]), number(a[4])
		no := &dlock.NotAcquiredError{Name: req.Name, Reason: reason, Slots: req.Slots, Ends: milliseconds(ends - now), News: news}
		if value, _ := a[5].(string); value != "" {
			if held, err := parseValue(value); err == nil { // a text that is no lease holds the slot all the same
				no.Holder, no.Since = held.holder(), milliseconds(now-held.Since)
			}
		}
		return dlock.Grant{}, no
	}
	return dlock.Grant{}, fmt.Errorf("%w: %s", errAnswer, outline(a))
}

func parseEach(a []any, members []int, results []dlock.Result) error {
	if len(a) != len(members)+1 {
		return fmt.Errorf("%w: %d values for %d leases", errAnswer, len(a), len(members))
	}
	news := dlock.News{Slots: int(number(a[0]))}
	for i, m := range members {
		outcome := dlock.Lost
		if number(a[i+1]) == 1 {
			outcome = dlock.OK
		}
		results[m] = dlock.Result{Outcome: outcome, News: news}
	}
	return nil
}

func parseList(name string, a []any) ([]dlock.Held, error) {
	if len(a)%3 != 1 {
		return nil, fmt.Errorf("%w: %d values", errAnswer, len(a))
	}
	var list []dlock.Held
	now := number(a[0])
	for i := 1; i < len(a); i += 3 {
		value, _ := a[i+2].(string)
		held, err := parseValue(value)
		if err != nil {
			return nil, fmt.Errorf("redislock: %w: slot %d of %s does not hold a lease: %w", dlock.ErrFault, number(a[i]), name, err)
		}
		list = append(list, dlock.Held{
			Name: name, Slot: int(number(a[i])), Holder: held.holder(), Fence: dlock.Fence(held.Fence),
			Since: milliseconds(now - held.Since), Ends: milliseconds(number(a[i+1])),
		})
	}
	slices.SortFunc(list, func(a, b dlock.Held) int { return a.Slot - b.Slot })
	return list, nil
}

// stored is the value of a lease's key. Its token stays in there.
type stored struct {
	Fence int64  `json:"fence"`
	Since int64  `json:"since"` // ms, the server's clock
	Host  string `json:"host"`
	PID   int    `json:"pid"`
	ID    string `json:"id"`
}

func (v stored) holder() dlock.Holder { return dlock.Holder{Host: v.Host, PID: v.PID, ID: v.ID} }

func parseValue(value string) (v stored, err error) {
	err = json.Unmarshal([]byte(value), &v)
	return v, err
}

// outline tells what kind of answer it is. The whole may have a token in it.
func outline(a []any) string {
	if len(a) == 0 {
		return "nothing"
	}
	return fmt.Sprintf("%d parts, the first is %.20q", len(a), fmt.Sprint(a[0]))
}

// number reads what a script may return as an integer or as a string; 0 if it is neither.
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

// maxMicros is far beyond any age, and short of what a time.Duration cannot hold.
const maxMicros = 1 << 53

func microseconds(n int64) time.Duration {
	return time.Duration(min(max(0, n), maxMicros)) * time.Microsecond
}

func milliseconds(n int64) time.Duration { return time.Duration(max(0, n)) * time.Millisecond }
