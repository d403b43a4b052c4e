package redistest

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/servertest"
)

// masterName is the master's name in the sentinels.
const masterName = "mymaster"

// SentinelOptions configure a Sentinel. The zero value is a single sentinel, which decides alone.
type SentinelOptions struct {
	// Options apply to master and replica, and TLS also to the sentinels.
	Options
	// Sentinels is the number of sentinels. A majority must agree. Default 1.
	Sentinels int
	// Relays makes the sentinels and the two servers reach each server through a relay, so that a
	// test can cut it off from them.
	Relays bool
}

// A Sentinel is a master with one replica, and sentinels that fail over after half a second of
// silence.
type Sentinel struct {
	// Master and Replica are the initial roles. Failovers do not swap them.
	Master, Replica *Server
	// Sentinels are the sentinel processes.
	Sentinels []*Server
	// Relays lead to Master and Replica, or are nil without Options.Relays. The sentinels name the
	// two servers by the addresses of their relays; Dial translates them.
	Relays map[*Server]*servertest.Proxy
}

// StartSentinel starts the servers, and waits until the replica is in sync and the sentinels could
// promote it.
func StartSentinel(opts ...SentinelOptions) (*Sentinel, error) {
	opt := SentinelOptions{Sentinels: 1}
	if len(opts) > 0 {
		opt = opts[0]
		opt.Sentinels = max(1, opt.Sentinels)
	}
	pair, err := startAll(2, func() (*Server, error) { return Start(opt.Options) })
	if err != nil {
		for _, s := range pair {
			s.Close()
		}
		return nil, err
	}
	s := &Sentinel{Master: pair[0], Replica: pair[1]}
	if err := s.form(opt); err != nil {
		err = fmt.Errorf("%w\n%s", err, s.Log())
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Sentinel) form(opt SentinelOptions) error {
	ctx := context.Background()
	if opt.Relays {
		s.Relays = map[*Server]*servertest.Proxy{}
		for _, server := range []*Server{s.Master, s.Replica} {
			relay, err := servertest.NewProxy(server.Addr())
			if err != nil {
				return err
			}
			s.Relays[server] = relay
			// As a replica, too, the server must be known only by that address.
			_, port, _ := strings.Cut(relay.Addr(), ":")
			if err := server.Client().ConfigSet(ctx, "replica-announce-port", port).Err(); err != nil {
				return fmt.Errorf("redistest: sentinel: announce: %w", err)
			}
			if err := server.Client().ConfigRewrite(ctx).Err(); err != nil {
				return fmt.Errorf("redistest: sentinel: rewrite config: %w", err)
			}
		}
	}
	_, port, _ := strings.Cut(s.NameOf(s.Master), ":")
	// Done at run time, because an argument would make a promoted replica a replica again after a
	// restart.
	err := s.Replica.Client().ReplicaOf(ctx, "127.0.0.1", port).Err()
	if err != nil {
		return fmt.Errorf("redistest: sentinel: replicate: %w", err)
	}
	// A replica that restarts before any failover must still be a replica.
	if err := s.Replica.Client().ConfigRewrite(ctx).Err(); err != nil {
		return fmt.Errorf("redistest: sentinel: rewrite config: %w", err)
	}
	err = testkit.Poll(settleLimit, "redistest: sentinel: replication", func(ctx context.Context) error {
		return linkUp(ctx, s.Replica)
	})
	if err != nil {
		return err
	}
	// A sentinel asks the master for its replicas when it first connects, and then only every ten
	// seconds. So it must not start before the replica has connected.
	s.Sentinels, err = startAll(opt.Sentinels, func() (*Server, error) {
		return s.Watch("127.0.0.1:"+port, opt.Sentinels/2+1)
	})
	if err != nil {
		return err
	}
	return testkit.Poll(settleLimit, "redistest: sentinel: replica", func(ctx context.Context) error {
		for _, w := range s.Sentinels {
			if err := canPromote(ctx, w, len(s.Sentinels)-1); err != nil {
				return err
			}
		}
		return nil
	})
}

// Watch starts another sentinel, which initially knows only the master at addr. The caller closes
// it.
func (s *Sentinel) Watch(addr string, quorum int) (*Server, error) {
	var config strings.Builder
	fmt.Fprintf(&config, "sentinel monitor %s %s %d\n", masterName, strings.ReplaceAll(addr, ":", " "), quorum)
	fmt.Fprintf(&config, "sentinel down-after-milliseconds %s 500\n", masterName)
	fmt.Fprintf(&config, "sentinel failover-timeout %s 2000\n", masterName)
	fmt.Fprintf(&config, "sentinel auth-pass %s %s\n", masterName, s.Master.opts.Password)
	return start(Options{TLS: s.Master.opts.TLS}, sentinel, []byte(config.String()))
}

// Dial connects to a server by an address that the sentinels report, bypassing the relays. With
// Relays, clients must use it.
func (s *Sentinel) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	for server, relay := range s.Relays {
		if addr == relay.Addr() {
			addr = server.Addr()
		}
	}
	return (&net.Dialer{Timeout: settleLimit}).DialContext(ctx, network, addr)
}

// canPromote returns an error that says what a sentinel still lacks to promote the replica.
func canPromote(ctx context.Context, s *Server, others int) error {
	if reply, err := s.Client().Do(ctx, "SENTINEL", "SENTINELS", masterName).Slice(); err != nil ||
		len(reply) != others {
		return fmt.Errorf("%d other sentinels known of %d: %v", len(reply), others, err)
	}
	reply, err := s.Client().Do(ctx, "SENTINEL", "REPLICAS", masterName).Slice()
	if err != nil {
		return err
	}
	if len(reply) != 1 {
		return fmt.Errorf("%d replicas known", len(reply))
	}
	fields := map[string]string{}
	switch r := reply[0].(type) {
	case map[any]any:
		for k, v := range r {
			fields[fmt.Sprint(k)] = fmt.Sprint(v)
		}
	case []any:
		for i := 0; i+1 < len(r); i += 2 {
			fields[fmt.Sprint(r[i])] = fmt.Sprint(r[i+1])
		}
	}
	if fields["flags"] != "slave" || fields["master-link-status"] != "ok" {
		return fmt.Errorf("replica is %q with link %q", fields["flags"], fields["master-link-status"])
	}
	return nil
}

// MasterName returns the master's name in the sentinels.
func (s *Sentinel) MasterName() string { return masterName }

// SentinelAddrs returns the sentinels' addresses.
func (s *Sentinel) SentinelAddrs() (addrs []string) {
	for _, w := range s.Sentinels {
		addrs = append(addrs, w.Addr())
	}
	return addrs
}

// MasterAddr returns the current master address according to all sentinels, or an error if they do
// not agree.
func (s *Sentinel) MasterAddr(ctx context.Context) (addr string, err error) {
	for _, w := range s.Sentinels {
		pair, err := w.Client().Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", masterName).StringSlice()
		if err != nil {
			return "", err
		}
		if len(pair) != 2 {
			return "", fmt.Errorf("redistest: sentinel: master address %q", pair)
		}
		told := pair[0] + ":" + pair[1]
		if addr != "" && told != addr {
			return "", fmt.Errorf("redistest: the sentinels give %s and %s", addr, told)
		}
		addr = told
	}
	return addr, nil
}

// NameOf returns the address by which the sentinels name a server.
func (s *Sentinel) NameOf(server *Server) string {
	if relay := s.Relays[server]; relay != nil {
		return relay.Addr()
	}
	return server.Addr()
}

// FailedOver waits until the sentinels name that server as the master.
func (s *Sentinel) FailedOver(to *Server) error {
	addr := s.NameOf(to)
	return testkit.Poll(3*settleLimit, "redistest: failover", func(ctx context.Context) error {
		got, err := s.MasterAddr(ctx)
		if err == nil && got != addr {
			err = fmt.Errorf("master is %s", got)
		}
		return err
	})
}

// Log returns the last output of the servers.
func (s *Sentinel) Log() string {
	var b strings.Builder
	log := func(name string, server *Server) {
		if server != nil {
			fmt.Fprintf(&b, "log of the %s %s:\n%s", name, server.Addr(), server.Log())
		}
	}
	log("master", s.Master)
	log("replica", s.Replica)
	for _, w := range s.Sentinels {
		log("sentinel", w)
	}
	return b.String()
}

// Close stops the servers. It may be called repeatedly.
func (s *Sentinel) Close() {
	for _, p := range append(slices.Clone(s.Sentinels), s.Replica, s.Master) {
		if p != nil {
			p.Close()
		}
	}
	for _, relay := range s.Relays {
		relay.Close()
	}
}
