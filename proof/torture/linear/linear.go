// Package linear checks with porcupine that the results of a lock's clients can be explained by one
// order of all their calls, with leases that end exactly when they must: I1, I4, I5 and I6 of a
// store. It checks one name at a time.
//
// It does not know which client waited for which, so it detects that a store refuses despite a free
// slot only if nothing else explains the refusal.
package linear

import (
	"cmp"
	"math"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tickslot/tickslot/proof/torture"
)

// Slots is the maximum number of slots of a lock in a history.
const Slots = 2

// These are actions of the store itself, as operations among those of the clients.
const (
	expire = "expire" // the lease of Token ends unless a call after ID renewed it
	forget = "forget" // all leases are lost
)

// These bound the error of a store's clock, and its delay in noticing that a lease has ended.
const (
	early = 2 * time.Millisecond
	late  = 60 * time.Millisecond
)

// A slot records its holder, and since which call.
type slot struct {
	token   string
	version int64
}

type state [Slots]slot

func (s state) find(token string) int {
	for i := range s {
		if s[i].token == token {
			return i
		}
	}
	return -1
}

func (s state) with(i int, to slot) state {
	s[i] = to
	return s
}

var model = porcupine.NondeterministicModel{
	Init: func() []any { return []any{state{}} },
	Step: func(from, input, _ any) (to []any) {
		for _, s := range step(from.(state), input.(torture.Op)) {
			to = append(to, s)
		}
		return to
	},
}

// step returns the states to which a call with that result can lead, or none if the result is
// impossible.
func step(s state, op torture.Op) []state {
	held := s.find(op.Token)
	me := slot{op.Token, op.ID}
	switch op.Op {
	case expire:
		if held >= 0 && s[held].version == op.ID {
			return []state{s.with(held, slot{})}
		}
		return []state{s}
	case forget:
		return []state{{}}
	case "acquire":
		return acquire(s, op, held, me)
	case "extend":
		return ifHeld(s, op, held >= 0, func() state { return s.with(held, me) })
	default: // release
		return ifHeld(s, op, held >= 0, func() state { return s.with(held, slot{}) })
	}
}

// ifHeld is a call that has an effect only if the token is held.
func ifHeld(s state, op torture.Op, held bool, done func() state) []state {
	switch {
	case op.Result == "unknown" && held:
		return []state{done(), s}
	case op.Result == "unknown":
		return []state{s}
	case op.Result == "ok" && held:
		return []state{done()}
	case op.Result == "lost" && !held:
		return []state{s}
	case op.Result == "lost" && op.Repeats && op.Op == "release":
		return []state{done()} // the driver has sent it twice, and this is the second answer
	default:
		return nil
	}
}

func acquire(s state, op torture.Op, held int, me slot) (to []state) {
	var granted []int
	if held >= 0 {
		granted = []int{held} // a repeated request
	} else {
		for i := range op.Slots {
			if s[i] == (slot{}) {
				granted = append(granted, i)
			}
		}
	}
	switch op.Result {
	case "ok":
		for _, i := range granted {
			if i == op.Slot {
				return []state{s.with(i, me)}
			}
		}
		return nil
	case "no":
		if len(granted) == 0 {
			return []state{s}
		}
		return nil
	default:
		to = []state{s}
		for _, i := range granted {
			to = append(to, s.with(i, me))
		}
		return to
	}
}

// A Span is a time in which the store may have lost all data.
type Span struct{ From, To int64 }

// A Verdict is "ok", "illegal", or "unknown" if there was not enough time.
type Verdict string

// Check checks the calls for one name, whose leases last ttl. A call with an unknown result may
// have been executed at any time until its Until, or never.
func Check(ops []torture.Op, ttl time.Duration, forgets []Span, patience time.Duration) Verdict {
	var history []porcupine.Operation
	add := func(op torture.Op, from, to int64) {
		history = append(history, porcupine.Operation{ClientId: op.Client, Input: op, Call: from, Return: to})
	}
	first, last := int64(math.MaxInt64), int64(0)
	for _, op := range ops {
		first, last = min(first, op.Call), max(last, op.Return)
		to := op.Return
		if op.Result == "unknown" {
			to = cmp.Or(op.Until, math.MaxInt64)
		}
		add(op, op.Call, to)
		if leased := op.Op != "release" && (op.Result == "ok" || op.Result == "unknown"); leased {
			until := int64(math.MaxInt64)
			if to < until {
				until = to + int64(ttl+late)
			}
			add(torture.Op{Op: expire, Token: op.Token, ID: op.ID}, op.Call+int64(ttl-early), until)
		}
	}
	for _, f := range forgets {
		if f.From <= last && first <= f.To {
			add(torture.Op{Op: forget}, f.From, f.To)
		}
	}
	switch porcupine.CheckOperationsTimeout(model.ToModel(), history, patience) {
	case porcupine.Ok:
		return "ok"
	case porcupine.Illegal:
		return "illegal"
	default:
		return "unknown"
	}
}
