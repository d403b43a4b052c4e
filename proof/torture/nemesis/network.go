package nemesis

import (
	"errors"
	"time"

	"github.com/tickslot/tickslot/proof/servertest"
)

// NetworkFaults are what Network does.
var NetworkFaults = []string{"net_reset", "net_cut", "net_black_hole", "net_black_hole", "net_slow", "net_fading",
	"net_fading", "net_stranded", "net_replies_lost", "net_cut_inside"}

// Network does something to a way to the store, and returns when it is over. A call over it may
// take as long as timeout, and a lease lasts for ttl.
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
	case "net_stranded": // the host gets another address: what was open falls silent for good
		each(func(p *servertest.Proxy) { p.BlackHole(true) })
		time.Sleep(f.For)
		each(func(p *servertest.Proxy) { p.Strand(); p.BlackHole(false) })
	case "net_slow": // sometimes too slow
		each(func(p *servertest.Proxy) { p.DelayUpTo(timeout/20, timeout*6/10) })
		time.Sleep(f.For)
		each(func(p *servertest.Proxy) { p.Delay(0) })
	case "net_fading": // answers come late, and then none: trust counted from the answer lasts too long
		each(func(p *servertest.Proxy) { p.DelayReplies(timeout * 8 / 10) })
		// a heartbeat or two; much longer, and no run would be left, for nothing is acquired
		// meanwhile
		time.Sleep(f.For)
		each(func(p *servertest.Proxy) { p.BlackHole(true) })
		time.Sleep(ttl * 3 / 2)
		each(func(p *servertest.Proxy) { p.DelayReplies(0); p.BlackHole(false) })
	case "net_replies_lost":
		each(func(p *servertest.Proxy) { p.LoseReplies(true) })
		time.Sleep(f.For)
		each(func(p *servertest.Proxy) { p.LoseReplies(false) })
	case "net_cut_inside": // in the middle of a request, and the server gives the connection up later
		each(func(p *servertest.Proxy) { p.CutRequests(true) })
		time.Sleep(f.For)
		each(func(p *servertest.Proxy) { p.CutRequests(false); p.Reset() })
	default:
		return f.Unknown()
	}
	return nil
}
