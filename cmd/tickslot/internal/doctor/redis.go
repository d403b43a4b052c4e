package doctor

import (
	"context"
	"strconv"
	"strings"

	"github.com/tickslot/tickslot/dlock/driver"
)

// nearlyFull is the share of maxmemory from which a Redis server is nearly full.
const nearlyFull = 0.9

// redis looks for conditions in which a Redis server grants nothing although its settings are
// right. The audit reports commands that the user may not call.
func (r *report) redis(ctx context.Context) {
	r.keys(ctx)
	servers, err := r.Store.RedisServers(ctx)
	if err != nil {
		return
	}
	for _, s := range servers {
		const about = "settings for leases"
		where := ""
		if len(servers) > 1 {
			where = s.Name + ": "
		}
		limit, used := s.Number("maxmemory"), s.Number("used_memory")
		switch {
		case limit <= 0:
		case used >= limit && s.Info("maxmemory_policy") == "noeviction":
			r.fail(about, "Raise maxmemory, or delete what is not needed.", "%sthe memory is full (%d of %d bytes): "+
				"it refuses every lease", where, used, limit)
		case float64(used) >= nearlyFull*float64(limit) && s.Info("maxmemory_policy") == "noeviction":
			r.warn(about, "Raise maxmemory, or delete what is not needed.", "%sthe memory is nearly full (%d of %d "+
				"bytes): when it is, every lease is refused", where, used, limit)
		}
		if s.Config["appendfsync"] == "no" && s.Info("aof_enabled") == "1" {
			r.warn(about, "Set appendfsync everysec.",
				"%sappendfsync is no: a crash of the machine forgets up to 30 s "+
					"of leases and ticks", where)
		}
		good := s.Info("min_slaves_good_slaves") // present if a minimum is set
		least, err := strconv.ParseInt(s.Config["min-replicas-to-write"], 10, 64)
		if err != nil {
			least = 1 // the user may not read it
		}
		if good != "" && s.Number("min_slaves_good_slaves") < least {
			r.fail(about, "Start replicas, or lower min-replicas-to-write.", "%sonly %s replicas are in step, and "+
				"min-replicas-to-write is %d: it refuses every lease", where, good, least)
		}
	}
}

// keys reads the keys of an unused lock. A user who may not read them cannot acquire a lock.
func (r *report) keys(ctx context.Context) {
	_, err := driver.CapabilitiesOf(r.Store.Locks).Controller.Inspect(ctx, "tickslot-doctor")
	if err == nil || !strings.Contains(err.Error(), "NOPERM") || !strings.Contains(err.Error(), "key") {
		return
	}
	r.fail("keys of locks", "See that --prefix is that of the hosts. If it is, the user needs the keys: ACL SETUSER "+
		"USER '~PREFIX*' '~{PREFIX*' (docs/redis.md).", "this user may not use them: %v", err)
}
