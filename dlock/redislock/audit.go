package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/dlock"
)

// Audit implements dlock.Auditor. It warns of an eviction policy that can take leases, of a server that keeps nothing over a restart, of replicas that
// do not bind the master or do not follow it, and of clocks that are more than a second apart. It asks TIME, INFO and CONFIG GET, nothing that
// others would have to wait for; what its user may not ask, it says.
func (s *Store) Audit(ctx context.Context) ([]string, error) {
	if s.fault != nil {
		return nil, s.fault
	}
	a := audit{now: s.hostClock, embedded: s.quarantine == 0, blind: s.blind,
		forgetful: fmt.Sprintf("a restart forgets every lease and every tick, nothing is granted for %v then, and a tick that was started may start again", s.quarantine)}
	if s.blind {
		a.forgetful = "a restart forgets every lease and every tick, and what others hold is granted at once (NoQuarantine)"
	}
	var err error
	if c, ok := s.client.(*redis.ClusterClient); ok {
		err = c.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			return a.look(ctx, node, node.Options().Addr+": ")
		})
	} else {
		err = a.look(ctx, s.client, "")
	}
	return a.warnings(), err
}

// Audit implements dlock.Auditor, as that of a Store does, for every server. The error is of those that did not answer.
func (q *Quorum) Audit(ctx context.Context) ([]string, error) {
	if q.fault != nil {
		return nil, q.fault
	}
	a := audit{now: q.hostClock, forgetful: "after a restart it votes at once for what others still hold"}
	errs := make([]error, len(q.clients))
	var wg sync.WaitGroup
	for i, client := range q.clients {
		wg.Go(func() {
			where := fmt.Sprintf("server %d of %d: ", i+1, len(q.clients))
			if err := a.look(ctx, client, where); err != nil {
				errs[i] = fmt.Errorf("redislock: %s%w", where, err)
			}
		})
	}
	wg.Wait()
	return a.warnings(), errors.Join(errs...)
}

// An audit collects what is found on one or more servers.
type audit struct {
	now       func() time.Time // the host's clock
	embedded  bool
	blind     bool
	forgetful string // what it means that a server comes back without its data

	mu    sync.Mutex
	found []string
}

func (a *audit) warnings() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	slices.Sort(a.found)
	return slices.Compact(a.found)
}

// look looks at one server. An error is one of the connection: what the server refuses is a warning.
func (a *audit) look(ctx context.Context, server redis.Cmdable, where string) error {
	warn := func(format string, args ...any) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.found = append(a.found, where+fmt.Sprintf(format, args...))
	}
	now := a.now
	if now == nil {
		now = time.Now
	}
	sent := now()
	clock, err := server.Time(ctx).Result()
	switch got := now(); {
	case declined(err):
		warn("this user may not execute TIME, which every lease needs: grant what docs/redis.md lists (%v)", err)
	case err != nil:
		return err
	default:
		if w := clockWarning(sent, got, clock); w != "" {
			warn("%s", w)
		}
	}
	info, err := server.Info(ctx).Result()
	switch {
	case declined(err) && a.embedded: // what is embedded need not know INFO
		return nil
	case declined(err) && a.blind:
		warn("this user may not execute INFO, which tells of eviction, persistence and replicas: see yourself that maxmemory-policy is noeviction (%v)", err)
		return nil
	case declined(err):
		warn("this user may not execute INFO, which every acquire needs to see a restart, and which tells of eviction, persistence and replicas: grant +info (%v)", err)
		return nil
	case err != nil:
		return err
	}

	if policy := infoField(info, "maxmemory_policy"); policy != "" && policy != "noeviction" && infoField(info, "maxmemory") != "0" {
		warn("maxmemory-policy is %s: Redis may evict leases, which can then be granted twice; set it to noeviction", policy)
	}
	if infoField(info, "role") == "slave" {
		warn("this server is a replica, which grants nothing: connect to the master")
		return nil
	}
	if !a.embedded && infoField(info, "aof_enabled") == "0" {
		switch config, err := server.ConfigGet(ctx, "save").Result(); {
		case declined(err):
			warn("the append-only file is off, and this user may not look whether snapshots are on (CONFIG GET save): see yourself that they are, because without either %s; or set appendonly yes", a.forgetful)
		case err != nil:
			return err
		case config["save"] == "":
			warn("neither the append-only file nor snapshots are on: %s; set appendonly yes", a.forgetful)
		}
	}
	replicas, _ := strconv.Atoi(infoField(info, "connected_slaves"))
	if replicas > 0 && infoField(info, "min_slaves_good_slaves") == "" { // told only where a minimum is set
		warn("there are replicas, and min-replicas-to-write is 0: a master that is cut off from them goes on granting what its successor grants, too; set min-replicas-to-write 1 and min-replicas-max-lag 1")
	}
	written, _ := strconv.ParseInt(infoField(info, "master_repl_offset"), 10, 64)
	for i := range replicas {
		r := replica(infoField(info, "slave"+strconv.Itoa(i)))
		lag, _ := strconv.Atoi(r["lag"])
		offset, _ := strconv.ParseInt(r["offset"], 10, 64)
		const lost = "what it lacks is forgotten if it becomes the master now: see why it does not follow"
		switch {
		case r["state"] != "" && r["state"] != "online":
			warn("replica %s:%s is not in step yet (%s): %s", r["ip"], r["port"], r["state"], lost)
		case lag >= maxReplicaLag:
			warn("replica %s:%s has acknowledged nothing for %ds, and lacks %d bytes: %s", r["ip"], r["port"], lag, max(0, written-offset), lost)
		}
	}
	return nil
}

// maxReplicaLag is how many seconds a replica, which acknowledges every second, may be silent.
const maxReplicaLag = 3

// replica takes a line of INFO apart: ip=127.0.0.1,port=6380,state=online,offset=42,lag=0.
func replica(line string) map[string]string {
	fields := map[string]string{}
	for part := range strings.SplitSeq(line, ",") {
		name, value, _ := strings.Cut(part, "=")
		fields[name] = value
	}
	return fields
}

// infoField returns the value of a line of INFO.
func infoField(info, name string) string {
	_, value, _ := strings.Cut("\n"+info, "\n"+name+":")
	value, _, _ = strings.Cut(value, "\r")
	return value
}

// declined tells an answer of the server, no permission or no such command, from a connection that fails. That we are not let in at all is no such
// answer.
func declined(err error) bool {
	_, answered := errors.AsType[redis.Error](err)
	return answered && err != redis.Nil && !redis.HasErrorPrefix(err, "NOAUTH") && !redis.HasErrorPrefix(err, "WRONGPASS") && !redis.HasErrorPrefix(err, "LOADING")
}

// maxClockOffset is how far the clocks of this host and of the server may be apart.
const maxClockOffset = time.Second

// clockWarning compares the clocks of this host, before and after it asked, and of the server.
func clockWarning(sent, got, server time.Time) string {
	half := got.Sub(sent) / 2
	ahead := sent.Add(half).Sub(server)
	if ahead.Abs()-half <= maxClockOffset {
		return ""
	}
	const ms = time.Millisecond
	which, then := "ahead of", "starts its ticks too early, and those more than "+dlock.MaxTickAhead.String()+" ahead are refused"
	if ahead < 0 {
		which, then = "behind", "starts its ticks too late"
	}
	return fmt.Sprintf("the clock of this host is %v %s the server's (give or take %v): leases do not mind, but this host %s; have both follow NTP",
		ahead.Abs().Round(ms), which, max(half.Round(ms), ms), then)
}
