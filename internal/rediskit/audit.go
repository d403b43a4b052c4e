package rediskit

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

	"github.com/tickslot/tickslot/internal/clocks"
)

// An Audit collects warnings about one or more servers.
type Audit struct {
	Now       func() time.Time // this host's clock; time.Now if nil
	Embedded  bool             // the server runs within this process
	Blind     bool             // restarts are not detected
	Forgetful string           // the consequence of a restart without data

	mu    sync.Mutex
	found []string
}

// Warnings returns the warnings, sorted and without duplicates.
func (a *Audit) Warnings() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	slices.Sort(a.found)
	return slices.Compact(a.found)
}

// Look examines one server. It returns an error if the connection fails; if the server refuses a
// command, that is a warning.
func (a *Audit) Look(ctx context.Context, server redis.Cmdable, where string) error {
	warn := func(format string, args ...any) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.found = append(a.found, where+fmt.Sprintf(format, args...))
	}
	now := a.Now
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
		if w := clocks.Warning(sent, got, clock); w != "" {
			warn("%s", w)
		}
	}
	info, err := server.Info(ctx).Result()
	switch {
	case declined(err) && a.Embedded: // an embedded server need not support INFO
		return nil
	case declined(err) && a.Blind:
		warn("this user may not execute INFO, which shows eviction, persistence and replicas: make sure that "+
			"maxmemory-policy is noeviction (%v)", err)
		return nil
	case declined(err):
		warn("this user may not execute INFO, which every acquire needs to detect a restart, and which shows "+
			"eviction, persistence and replicas: grant +info (%v)", err)
		return nil
	case err != nil:
		return err
	}

	if policy := infoField(info, "maxmemory_policy"); policy != "" && policy != "noeviction" &&
		infoField(info, "maxmemory") != "0" {
		warn("maxmemory-policy is %s: Redis may evict leases, which can then be granted twice; set it to noeviction",
			policy)
	}
	if infoField(info, "role") == "slave" {
		warn("this server is a replica, which grants nothing: connect to the master")
		return nil
	}
	if !a.Embedded && infoField(info, "aof_enabled") == "0" {
		switch config, err := server.ConfigGet(ctx, "save").Result(); {
		case declined(err):
			warn("the append-only file is off, and this user may not check whether snapshots are on (CONFIG GET "+
				"save): make sure that they are, because without either %s; or set appendonly yes", a.Forgetful)
		case err != nil:
			return err
		case config["save"] == "":
			warn("neither the append-only file nor snapshots are on: %s; set appendonly yes", a.Forgetful)
		}
	}
	replicas, _ := strconv.Atoi(infoField(info, "connected_slaves"))
	if replicas > 0 && infoField(info, "min_slaves_good_slaves") == "" { // present only if a minimum is set
		warn("there are replicas, and min-replicas-to-write is 0: a master that is cut off from them goes on " +
			"granting what its successor also grants; set min-replicas-to-write 1 and min-replicas-max-lag 1")
	}
	written, _ := strconv.ParseInt(infoField(info, "master_repl_offset"), 10, 64)
	for i := range replicas {
		r := replica(infoField(info, "slave"+strconv.Itoa(i)))
		lag, _ := strconv.Atoi(r["lag"])
		offset, _ := strconv.ParseInt(r["offset"], 10, 64)
		const lost = "what it lacks is lost if it becomes the master now: find out why it lags"
		switch {
		case r["state"] != "" && r["state"] != "online":
			warn("replica %s:%s is not in sync yet (%s): %s", r["ip"], r["port"], r["state"], lost)
		case lag >= maxReplicaLag:
			warn("replica %s:%s has acknowledged nothing for %ds, and lacks %d bytes: %s", r["ip"], r["port"], lag,
				max(0, written-offset), lost)
		}
	}
	return nil
}

// maxReplicaLag is the number of seconds for which a replica may be silent. It acknowledges every
// second.
const maxReplicaLag = 3

// replica parses a line of INFO, such as ip=127.0.0.1,port=6380,state=online,offset=42,lag=0.
func replica(line string) map[string]string {
	fields := map[string]string{}
	for part := range strings.SplitSeq(line, ",") {
		name, value, _ := strings.Cut(part, "=")
		fields[name] = value
	}
	return fields
}

// infoField returns the value of a field of INFO.
func infoField(info, name string) string {
	_, value, _ := strings.Cut("\n"+info, "\n"+name+":")
	value, _, _ = strings.Cut(value, "\r")
	return value
}

// declined reports whether the server refused the command (no permission, or no such command). A
// failed connection or login is not a refusal.
func declined(err error) bool {
	_, answered := errors.AsType[redis.Error](err)
	return answered && !errors.Is(err, redis.Nil) && !redis.HasErrorPrefix(err, "NOAUTH") &&
		!redis.HasErrorPrefix(err, "WRONGPASS") && !redis.HasErrorPrefix(err, "LOADING")
}
