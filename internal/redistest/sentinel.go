package redistest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tickslot/tickslot/internal/servertest"
)

// masterName is the name the sentinel knows its master by.
const masterName = "mymaster"

// Sentinel is a master with one replica, watched by one sentinel that needs
// nobody's agreement and fails over after half a second of silence.
type Sentinel struct {
	// Master and Replica are named after their roles at the start; failovers
	// do not swap them.
	Master, Replica *Server
	// Sentinel is the watching process itself.
	Sentinel *Server
}

// StartSentinel runs the three servers, and waits until the replica is in sync
// and the sentinel could promote it. Options apply to master and replica.
func StartSentinel(opts ...Options) (*Sentinel, error) {
	opt := only(opts)
	if opt.TLS {
		return nil, errors.New("redistest: sentinel: TLS is not supported")
	}
	pair, err := startAll(2, func() (*Server, error) { return Start(opt) })
	if err != nil {
		for _, s := range pair {
			s.Close()
		}
		return nil, err
	}
	s := &Sentinel{Master: pair[0], Replica: pair[1]}
	if err := s.form(s.Master.opts.Password); err != nil {
		err = fmt.Errorf("%w\n%s", err, s.Log())
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Sentinel) form(password string) error {
	// Done at run time rather than by an argument: an argument would make a
	// promoted replica a replica again at its restart.
	port := strconv.Itoa(s.Master.Port())
	err := s.Replica.Client().ReplicaOf(context.Background(), "127.0.0.1", port).Err()
	if err != nil {
		return fmt.Errorf("redistest: sentinel: replicate: %w", err)
	}
	// So that a replica restarted before any failover is still one.
	if err := s.Replica.Client().ConfigRewrite(context.Background()).Err(); err != nil {
		return fmt.Errorf("redistest: sentinel: rewrite config: %w", err)
	}
	err = servertest.Poll(settleLimit, "redistest: sentinel: replication", func(ctx context.Context) error {
		return linkUp(ctx, s.Replica)
	})
	if err != nil {
		return err
	}
	// The sentinel asks the master for its replicas when it first connects, and
	// then only every ten seconds: it must not start before the replica is in.
	var config strings.Builder
	fmt.Fprintf(&config, "sentinel monitor %s 127.0.0.1 %s 1\n", masterName, port)
	fmt.Fprintf(&config, "sentinel down-after-milliseconds %s 500\n", masterName)
	fmt.Fprintf(&config, "sentinel failover-timeout %s 2000\n", masterName)
	fmt.Fprintf(&config, "sentinel auth-pass %s %s\n", masterName, password)
	s.Sentinel, err = start(Options{}, sentinel, []byte(config.String()))
	if err != nil {
		return err
	}
	return servertest.Poll(settleLimit, "redistest: sentinel: replica", s.known)
}

// known returns what the sentinel still lacks to promote the replica.
func (s *Sentinel) known(ctx context.Context) error {
	reply, err := s.Sentinel.Client().Do(ctx, "SENTINEL", "REPLICAS", masterName).Slice()
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

// MasterName returns the name to ask the sentinel for.
func (s *Sentinel) MasterName() string { return masterName }

// SentinelAddrs returns the sentinel's address, as the list that clients take.
func (s *Sentinel) SentinelAddrs() []string { return []string{s.Sentinel.Addr()} }

// MasterAddr returns the address the sentinel gives for the master now.
func (s *Sentinel) MasterAddr(ctx context.Context) (string, error) {
	pair, err := s.Sentinel.Client().Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", masterName).StringSlice()
	if err != nil {
		return "", err
	}
	if len(pair) != 2 {
		return "", fmt.Errorf("redistest: sentinel: master address %q", pair)
	}
	return pair[0] + ":" + pair[1], nil
}

// Log returns the ends of the three servers' output.
func (s *Sentinel) Log() string {
	var b strings.Builder
	for _, p := range []struct {
		name   string
		server *Server
	}{{"master", s.Master}, {"replica", s.Replica}, {"sentinel", s.Sentinel}} {
		if p.server != nil {
			fmt.Fprintf(&b, "log of the %s %s:\n%s", p.name, p.server.Addr(), p.server.Log())
		}
	}
	return b.String()
}

// Close ends the three servers. It can be called more than once.
func (s *Sentinel) Close() {
	for _, p := range []*Server{s.Sentinel, s.Replica, s.Master} {
		if p != nil {
			p.Close()
		}
	}
}
