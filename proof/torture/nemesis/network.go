package nemesis

import (
	"errors"
	"time"

	"github.com/tickslot/tickslot/proof/servertest"
)

// NetworkFaults are the faults of Network.
var NetworkFaults = []string{"net_reset", "net_cut", "net_black_hole", "net_black_hole", "net_slow", "net_fading",
	"net_fading", "net_stranded", "net_replies_lost", "net_cut_inside"}

// Network performs a fault on a connection to the store, and returns when it is over. timeout is
// the timeout of a call, and ttl the length of a lease.
func Network(proxies []*servertest.Proxy, f Fault, timeout, ttl time.Duration) error {
	each := func(do func(p *servertest.Proxy)) {
		for _, p := range proxies {
			do(p)
		}
	}
	switch f.Kind {
	case "net_reset":
		each((*servertest.Proxy).Reset)
	case "net_cut":
		each((*servertest.Proxy).Cut)
		time.Sleep(f.For)
		var errs []error
		each(func(p *servertest.Proxy) { errs = append(errs, p.Mend()) })
		return errors.Join(errs...)
	case "net_black_hole":
		each(func(p *servertest.Proxy) { p.BlackHole(true) })
		time.Sleep(f.For)
		each(func(p *servertest.Proxy) { p.BlackHole(false) })
	case "net_stranded": // as if the host got a new address: open connections fall silent forever
		each(func(p *servertest.Proxy) { p.BlackHole(true) })
		time.Sleep(f.For)
		each(func(p *servertest.Proxy) { p.Strand(); p.BlackHole(false) })
	case "net_slow": // sometimes beyond the timeout
		each(func(p *servertest.Proxy) { p.DelayUpTo(timeout/20, timeout*6/10) })
		time.Sleep(f.For)
		each(func(p *servertest.Proxy) { p.Delay(0) })
	case "net_fading": // answers come late, then stop: trust counted from an answer would last too long
		each(func(p *servertest.Proxy) { p.DelayReplies(timeout * 8 / 10) })
		// Long enough for a heartbeat or two. Much longer, and no run would be left, because
		// nothing is acquired meanwhile.
		time.Sleep(f.For)
		each(func(p *servertest.Proxy) { p.BlackHole(true) })
		time.Sleep(ttl * 3 / 2)
		each(func(p *servertest.Proxy) { p.DelayReplies(0); p.BlackHole(false) })
	case "net_replies_lost":
		each(func(p *servertest.Proxy) { p.LoseReplies(true) })
		time.Sleep(f.For)
		each(func(p *servertest.Proxy) { p.LoseReplies(false) })
	case "net_cut_inside": // within a request; the server closes the connection later
		each(func(p *servertest.Proxy) { p.CutRequests(true) })
		time.Sleep(f.For)
		each(func(p *servertest.Proxy) { p.CutRequests(false); p.Reset() })
	default:
		return f.Unknown()
	}
	return nil
}
