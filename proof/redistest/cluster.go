package redistest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/internal/testkit"
)

const slots = 16384

// settleLimit bounds the wait until servers have found each other.
const settleLimit = 30 * time.Second

// A Cluster is a Redis Cluster of servers of this package.
type Cluster struct {
	// Nodes are the masters in the order of their slots, then the replicas:
	// the first master's, the second master's, and so on. Failovers do not
	// reorder them.
	Nodes []*Server

	mu     sync.Mutex
	client *redis.ClusterClient
	closed bool
}

// StartCluster runs a cluster of n masters that share the slots equally, and waits until every node
// reports it as complete. That takes over two seconds, because a new master refuses writes for that
// long. Options apply to every node.
func StartCluster(n int, opts ...Options) (*Cluster, error) {
	return StartClusterWithReplicas(n, 0, opts...)
}

// StartClusterWithReplicas is StartCluster with replicas for each master, which
// are in sync when it returns. Automatic failover needs three masters.
func StartClusterWithReplicas(masters, replicasPer int, opts ...Options) (*Cluster, error) {
	if masters < 1 || masters > slots || replicasPer < 0 {
		return nil, fmt.Errorf("redistest: cluster of %d masters with %d replicas each", masters, replicasPer)
	}
	opt := only(opts)
	nodes, err := startAll(masters*(1+replicasPer), func() (*Server, error) {
		return start(opt, clusterNode, nil)
	})
	c := &Cluster{Nodes: nodes}
	if err == nil {
		err = c.form(masters, replicasPer)
	}
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, c.Log())
		c.Close()
		return nil, err
	}
	return c, nil
}

// only returns the options of an optional argument.
func only(opts []Options) Options {
	if len(opts) == 0 {
		return Options{}
	}
	return opts[0]
}

// startAll starts n servers concurrently. It returns the ones that started, even if others failed.
func startAll(n int, start func() (*Server, error)) ([]*Server, error) {
	all := make([]*Server, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { all[i], errs[i] = start() })
	}
	wg.Wait()
	up := all[:0]
	for _, s := range all {
		if s != nil {
			up = append(up, s)
		}
	}
	return up, errors.Join(errs...)
}

// form joins separate nodes into a cluster.
func (c *Cluster) form(masters, replicasPer int) error {
	ctx, cancel := context.WithTimeout(context.Background(), settleLimit)
	defer cancel()
	for i, n := range c.Nodes {
		// Distinct epochs from the start avoid rounds in which nodes settle conflicting ones. A
		// node accepts an epoch only before it has met another node.
		if err := n.Client().Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			return fmt.Errorf("redistest: cluster: set epoch: %w", err)
		}
		if i < masters {
			low, high := i*slots/masters, (i+1)*slots/masters-1
			if err := n.Client().ClusterAddSlotsRange(ctx, low, high).Err(); err != nil {
				return fmt.Errorf("redistest: cluster: add slots: %w", err)
			}
		}
	}
	for _, n := range c.Nodes[1:] {
		err := c.Nodes[0].Client().ClusterMeet(ctx, "127.0.0.1", strconv.Itoa(n.Port())).Err()
		if err != nil {
			return fmt.Errorf("redistest: cluster: meet: %w", err)
		}
	}
	for i, r := range c.Nodes[masters:] {
		id, err := c.Nodes[i/replicasPer].Client().ClusterMyID(ctx).Result()
		if err != nil {
			return fmt.Errorf("redistest: cluster: id: %w", err)
		}
		err = testkit.Poll(settleLimit, "redistest: cluster: replicate", func(ctx context.Context) error {
			// The command is refused until the replica knows the master.
			return r.Client().ClusterReplicate(ctx, id).Err()
		})
		if err != nil {
			return err
		}
	}
	return testkit.Poll(settleLimit, "redistest: cluster", func(ctx context.Context) error {
		for i, n := range c.Nodes {
			if err := settled(ctx, n, masters, replicasPer, i >= masters); err != nil {
				return fmt.Errorf("node %s: %w", n.Addr(), err)
			}
		}
		return nil
	})
}

// settled returns an error that says what a node still lacks to be part of the cluster.
func settled(ctx context.Context, n *Server, masters, replicasPer int, replica bool) error {
	info, err := n.Client().ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	for _, want := range []string{
		"cluster_state:ok",
		fmt.Sprintf("cluster_slots_ok:%d", slots),
		fmt.Sprintf("cluster_known_nodes:%d", masters*(1+replicasPer)),
		fmt.Sprintf("cluster_size:%d", masters),
	} {
		if !strings.Contains(info, want+"\r\n") {
			return fmt.Errorf("no %s in\n%s", want, info)
		}
	}
	if replicasPer == 0 {
		return nil
	}
	// Clients learn the topology from any node, so all nodes must know it.
	//nolint:staticcheck // CLUSTER SHARDS came with Redis 7.0, and these tests are for 6.2, too
	known, err := n.Client().ClusterSlots(ctx).Result()
	if err != nil {
		return err
	}
	for _, s := range known {
		if len(s.Nodes) != 1+replicasPer {
			return fmt.Errorf("slots from %d: %d nodes", s.Start, len(s.Nodes))
		}
	}
	if !replica {
		return nil
	}
	return linkUp(ctx, n)
}

// linkUp returns an error until s is a replica in sync with its master.
func linkUp(ctx context.Context, s *Server) error {
	info, err := s.Client().Info(ctx, "replication").Result()
	if err != nil {
		return err
	}
	if !strings.Contains(info, "master_link_status:up\r\n") {
		return errors.New("link to the master is not up")
	}
	return nil
}

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.Nodes))
	for i, n := range c.Nodes {
		addrs[i] = n.Addr()
	}
	return addrs
}

// Client returns the test's client for the cluster, always the same one. Close closes it.
func (c *Cluster) Client() *redis.ClusterClient {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client == nil {
		c.client = redis.NewClusterClient(&redis.ClusterOptions{
			Addrs:                 c.Addrs(),
			Password:              c.Nodes[0].opts.Password,
			TLSConfig:             c.Nodes[0].TLSConfig(),
			DialTimeout:           time.Second,
			ReadTimeout:           2 * time.Second,
			WriteTimeout:          2 * time.Second,
			ContextTimeoutEnabled: true,
			DialerRetries:         1,
			PoolSize:              1000, // see Server.Client
		})
		if c.closed {
			_ = c.client.Close()
		}
	}
	return c.client
}

// Log returns the last output of all nodes.
func (c *Cluster) Log() string {
	var b strings.Builder
	for _, n := range c.Nodes {
		fmt.Fprintf(&b, "log of %s:\n%s", n.Addr(), n.Log())
	}
	return b.String()
}

// Close stops all nodes. It may be called repeatedly.
func (c *Cluster) Close() {
	c.mu.Lock()
	if !c.closed && c.client != nil {
		_ = c.client.Close()
	}
	c.closed = true
	c.mu.Unlock()
	for _, n := range c.Nodes {
		n.Close()
	}
}
