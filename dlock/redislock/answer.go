package redislock

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/tickslot/tickslot/dlock"
)

// What a server answers is checked like any input: nonsense is an error of the store, not a panic.

func parseAcquire(req dlock.Request, a []any) (dlock.Grant, error) {
	if len(a) < 5 {
		return dlock.Grant{}, fmt.Errorf("%w: %s", errAnswer, outline(a))
	}
	news := dlock.News{Slots: int(number(a[1])), Success: microseconds(number(a[2])), Orders: number(a[3]), Limit: int(number(a[4]))}
	if news.Orders < 0 || news.Limit < 0 || news.Limit > dlock.MaxSlots {
		return dlock.Grant{}, fmt.Errorf("%w: %s", errAnswer, outline(a))
	}
	a = slices.Delete(slices.Clone(a), 1, 5)
	verdict, _ := a[0].(string)
	switch reason := dlock.Reason(verdict); {
	case verdict == "ok" && len(a) == 4:
		slot, fence := number(a[1]), number(a[2])
		if slot < 0 || slot >= int64(max(req.Slots, news.Limit, 1)) || fence <= 0 {
			return dlock.Grant{}, fmt.Errorf("%w: %s", errAnswer, outline(a))
		}
		return dlock.Grant{Name: req.Name, Slots: req.Slots, Slot: int(slot), Token: req.Token, Fence: dlock.Fence(fence),
			News: news, Abandoned: number(a[3]) == 1}, nil
	case reason == dlock.TickLate || reason == dlock.TickAhead || reason == dlock.TickFirst:
		return dlock.Grant{}, &dlock.NotAcquiredError{Name: req.Name, Reason: reason, Slots: req.Slots, News: news}
	case reason == dlock.TickTaken && len(a) == 2:
		return dlock.Grant{}, &dlock.NotAcquiredError{Name: req.Name, Reason: reason, Slots: req.Slots, Holder: parseClaimer(a[1]), News: news}
	case reason == dlock.Paused && len(a) == 3:
		order, _ := parseOrder(a[2]) // whatever stands there, it is paused all the same
		return dlock.Grant{}, &dlock.NotAcquiredError{Name: req.Name, Reason: reason, Slots: req.Slots, Ends: microseconds(number(a[1])), Order: order, News: news}
	case (reason == dlock.Full || reason == dlock.Quarantine) && len(a) == 4:
		now, ends := number(a[1]), number(a[2])
		no := &dlock.NotAcquiredError{Name: req.Name, Reason: reason, Slots: req.Slots, Ends: milliseconds(ends - now), News: news}
		if value, _ := a[3].(string); value != "" {
			if held, err := parseValue(value); err == nil { // a text that is no lease holds the slot all the same
				no.Holder, no.Since = held.holder(), milliseconds(now-held.Since)
			}
		}
		return dlock.Grant{}, no
	}
	return dlock.Grant{}, fmt.Errorf("%w: %s", errAnswer, outline(a))
}

func parseEach(a []any, members []int, results []dlock.Result) error {
	if len(a) != len(members)+2 {
		return fmt.Errorf("%w: %d values for %d leases", errAnswer, len(a), len(members))
	}
	news := dlock.News{Slots: int(number(a[0])), Orders: max(0, number(a[1]))}
	for i, m := range members {
		r := dlock.Result{Outcome: dlock.Lost, News: news}
		if order, ok := a[i+2].(string); ok {
			revoked, err := parseOrder(order)
			if err != nil {
				return fmt.Errorf("%w: a lease was revoked: %w", errAnswer, err)
			}
			r.Revoked = &revoked
		} else if number(a[i+2]) == 1 {
			r.Outcome = dlock.OK
		}
		results[m] = r
	}
	return nil
}

// parseOrders reads what orders.lua returns.
func parseOrders(name string, a []any) (dlock.Orders, error) {
	if len(a) != 10 {
		return dlock.Orders{}, fmt.Errorf("%w: %d values", errAnswer, len(a))
	}
	now, o := number(a[0]), dlock.Orders{Name: name, Version: max(0, number(a[1]))}
	var fault error
	order := func(v any) dlock.Order {
		order, err := parseOrder(v)
		fault = cmp.Or(fault, err)
		return order
	}
	if until := number(a[2]); until > now {
		o.Pause = &dlock.Pause{Order: order(a[3]), For: microseconds(until - now)}
	}
	if slots := number(a[4]); slots > dlock.MaxSlots {
		fault = cmp.Or(fault, fmt.Errorf("a limit of %d", slots))
	} else if a[4] != "" && slots >= 0 {
		o.Limit = &dlock.Limit{Order: order(a[5]), Slots: int(slots)}
	}
	if at := number(a[7]); at > 0 {
		o.Trigger = &dlock.Trigger{Order: order(a[6]), At: time.UnixMicro(at), Ago: microseconds(now - at)}
	}
	if tick := number(a[8]); tick > 0 {
		o.Tick, o.Holder = time.UnixMicro(tick), parseClaimer(a[9])
	}
	if fault != nil {
		return dlock.Orders{}, fmt.Errorf("redislock: %w: the orders for %s make no sense (order anew, or delete that key): %w", dlock.ErrFault, name, fault)
	}
	return o, nil
}

// parseOrder reads who ordered something, and why.
func parseOrder(v any) (o dlock.Order, err error) {
	text, _ := v.(string)
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return dlock.Order{}, err
	}
	if err := o.Validate(); err != nil {
		return dlock.Order{}, err
	}
	return o, nil
}

// parseClaimer reads the members that tell whose start of a tick was the last; none if they are not there or make no sense.
func parseClaimer(v any) dlock.Holder {
	text, _ := v.(string)
	held, err := parseValue("{" + text + "}")
	if err != nil {
		return dlock.Holder{}
	}
	return held.holder()
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
