package main

import (
	"fmt"
	"time"

	"github.com/riverqueue/river"

	"github.com/tickslot/tickslot/outbox"
)

// outboxName begins the names of the outbox groups.
const outboxName = "outbox: "

// outboxes returns the groups for the outbox, and for the limit that tickslot gives to River.
func (l *lab) outboxes() []Group {
	list := []Group{l.appended(), l.delivered(), l.committed(), l.killed(), l.afterHistory(), l.hotKey(), l.bridge()}
	for i := range list {
		list[i].Name = outboxName + list[i].Name
	}
	return list
}

const (
	ourOutbox = "tickslot"
	watermill = "watermill-sql"
	riverBox  = "River"
	// someKeys is the number of keys in groups that do not measure keys.
	someKeys = 1000
	manyKeys = 10_000
	oldRows  = 100_000
	// leastRate is the target of messages delivered per second.
	leastRate = 5000
)

func (l *lab) relays() outboxSide { return outboxSide{postgres: l.postgres, keys: someKeys} }

func (l *lab) watermills() watermillSide { return watermillSide{postgres: l.postgres} }

func (l *lab) appended() Group {
	return Group{
		Name: fmt.Sprintf("append in a transaction of %d", 2*appendsEach), Unit: "µs (p50)", Less: true,
		Window: l.window(150*time.Millisecond, time.Second), Plot: "append",
		Cases: []Case{
			appendOf(ourOutbox, l.relays().fleet, appendOurs),
			fullOnly(appendOf(watermill, l.watermills().fleet, appendWatermill)),
			fullOnly(appendOf(riverBox, l.river(river.Config{}), appendRiver)),
		},
		Claims: []Claim{
			{Name: "Append over a bare INSERT of the row", Key: overBare, Unit: "µs", Bound: 100, Target: 1,
				AtMost: true},
		},
	}
}

// backlog returns how many messages wait when a fleet starts.
func (l *lab) backlog() int {
	if l.full {
		return 20_000
	}
	return 4_000
}

// delivers is a case that delivers the backlog with one relay or subscriber, or with two River
// clients that both deliver.
func (l *lab) delivers(name string, s side) Case {
	workers, places := 1, outbox.DefaultMaxDeliveries
	if name == riverBox {
		workers, places = 2, riverPlaces
	}
	return burnsDown(name, s, workers, places, l.backlog())
}

func (l *lab) delivered() Group {
	forwarded, queue := l.watermills(), l.watermills()
	forwarded.forwarder, queue.queue = true, true
	batches := l.relays()
	batches.config.BatchSize = 200
	const ofQueue = watermill + ", queue schema"
	return Group{
		Name: fmt.Sprintf("delivery of %d messages that wait", l.backlog()), Unit: "messages/s", Sharing: reopened,
		Rounds: l.rounds(5), Plot: "delivery",
		Cases: []Case{
			l.delivers(ourOutbox, l.relays().fleet),
			l.delivers(ourOutbox+", batches of 200", batches.fleet),
			l.delivers(watermill, l.watermills().fleet),
			l.delivers(ofQueue, queue.fleet),
			l.delivers(riverBox, l.river(quick)),
			fullOnly(l.delivers(watermill+", forwarder", forwarded.fleet)),
		},
		Claims: []Claim{
			{Name: "messages delivered/s", Bound: leastRate, Target: 1},
			{Name: "messages delivered/s beside watermill-sql", Peer: watermill, Target: 1},
			{Name: "messages delivered/s beside watermill-sql, queue schema", Peer: ofQueue},
			{Name: "messages delivered/s beside River", Peer: riverBox},
		},
	}
}

func (l *lab) committed() Group {
	often := l.watermills()
	often.poll = 10 * time.Millisecond
	return Group{
		Name: "from commit to delivery, one by one", Unit: "ms (p50)", Less: true, Sharing: caseByCase,
		Rounds: l.rounds(3), Window: l.window(1200*time.Millisecond, 10*time.Second), Plot: "commit",
		Cases: []Case{
			committed(ourOutbox+", notify", l.relays().fleet),
			fullOnly(committed(watermill+", its defaults", l.watermills().fleet)),
			fullOnly(committed(watermill+", polls every 10 ms", often.fleet)),
			fullOnly(committed(riverBox+", its defaults", l.river(river.Config{}))),
			fullOnly(committed(riverBox+", fetches every 2 ms", l.river(quick))),
		},
		Claims: []Claim{{Name: "p50 from commit to delivery, Postgres", Bound: 5, Target: 1, AtMost: true}},
	}
}

func (l *lab) killed() Group {
	ttl := l.window(3*time.Second, outbox.DefaultTTL)
	return Group{
		Name: fmt.Sprintf("fail-over of a relay that is killed, TTL %v", ttl), Unit: "s", Less: true,
		Sharing: caseByCase, Rounds: l.rounds(5), NoControl: true,
		Cases: []Case{failsOver(ourOutbox, l.relays(), ttl)},
		Claims: []Claim{{Name: "fail-over of a killed relay beside TTL + RetryInterval",
			Bound: (ttl + outbox.DefaultRetryInterval).Seconds(), Target: 1, AtMost: true}},
	}
}

// afterHistory measures delivery from a table that has been in use for a long time.
func (l *lab) afterHistory() Group {
	ours, theirs, jobs := l.relays(), l.watermills(), riverSide{postgres: l.postgres, config: quick, history: oldRows}
	ours.history, theirs.history = oldRows, 2*oldRows
	old := fmt.Sprintf(", %d dead and %d dispatched", oldRows, oldRows)
	return Group{
		Name: fmt.Sprintf("delivery beside %d dead and %d dispatched messages", oldRows, oldRows),
		Unit: "messages/s", Sharing: reopened, Rounds: l.rounds(5), Plot: "history",
		Cases: []Case{
			l.delivers(ourOutbox, l.relays().fleet),
			l.delivers(ourOutbox+old, ours.fleet),
			fullOnly(l.delivers(watermill, l.watermills().fleet)),
			fullOnly(l.delivers(watermill+fmt.Sprintf(", %d acknowledged", 2*oldRows), theirs.fleet)),
			fullOnly(l.delivers(riverBox, l.river(quick))),
			fullOnly(l.delivers(riverBox+old, jobs.fleet)),
		},
		Claims: []Claim{{Name: "messages delivered/s beside old ones", Ours: ourOutbox + old, Peer: ourOutbox,
			Target: 0.9}},
	}
}

// hotKey measures delivery of messages with many keys, and checks the order of each key.
func (l *lab) hotKey() Group {
	even, hot := l.relays(), l.relays()
	even.keys, hot.keys, hot.hot = manyKeys, manyKeys, true
	const ours = ourOutbox + ", half of them of one key"
	return Group{
		Name: fmt.Sprintf("delivery of messages of %d keys, in order", manyKeys), Unit: "messages/s",
		Sharing: reopened, Rounds: l.rounds(5), Plot: "keys",
		Cases: []Case{
			l.delivers(ours, hot.fleet),
			l.delivers(ourOutbox+", all keys alike", even.fleet),
			l.delivers(watermill+", all in one order", l.watermills().fleet),
			fullOnly(l.delivers(riverBox+", in no order", l.river(quick))),
		},
		Claims: []Claim{
			{Name: "messages delivered/s with a hot key", Bound: leastRate, Target: 1},
			{Name: "messages delivered/s with a hot key beside watermill-sql", Peer: watermill + ", all in one order",
				Target: 1},
			{Name: "messages delivered/s with a hot key beside keys alike", Peer: ourOutbox + ", all keys alike"},
		},
	}
}

// bridge measures River with tickslot's limit.
func (l *lab) bridge() Group {
	shape := slotShape{limit: 3, workers: 4, places: 4}
	single := shape
	single.places = 1
	limited := riverSide{postgres: l.postgres, redis: l.redis, limit: shape.limit}
	g := Group{
		Name: fmt.Sprintf("slots in use by River, limit %d, %d clients, jobs of %v to %v", shape.limit, shape.workers,
			shortestJob, longestJob), Unit: "% of the slots", Sharing: caseByCase, Begin: l.redis.flush,
		Window: l.window(3*time.Second, 15*time.Second), Rounds: l.rounds(3), NoControl: true, Plot: "bridge",
		Claims: []Claim{{Name: "slots in use by River, limit of tickslot", Bound: 95, Target: 1}},
	}
	of := func(name string, s side, shape slotShape) Case {
		return slotsOf(name, s, shape, time.Duration(g.Rounds)*g.Window)
	}
	g.Cases = []Case{
		of("tickslot and River, room for 4 jobs each", limited.fleet, shape),
		fullOnly(of("tickslot and River, room for one job each", limited.fleet, single)),
	}
	return g
}
