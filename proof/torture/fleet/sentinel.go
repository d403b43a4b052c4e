//go:build linux && amd64

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/torture"
	"github.com/tickslot/tickslot/proof/torture/nemesis"
)

// A sentinelStore has three sentinels and two servers. After a failover, the old master is alive
// and considers itself the master for about ten seconds, or for as long as the sentinels cannot
// reach it. Even then, valid runs must not exceed the limit; a tick may start again.
type sentinelStore struct{ *redistest.Sentinel }

func (s *sentinelStore) timing() Timing {
	return Timing{TTL: time.Second, StoreTimeout: 330 * time.Millisecond, Period: 240 * time.Millisecond}
}

func (s *sentinelStore) servers() []*redistest.Server {
	return []*redistest.Server{s.Master, s.Replica}
}

func (s *sentinelStore) targets() []string {
	return append([]string{s.Master.Addr(), s.Replica.Addr()}, s.SentinelAddrs()...)
}

func (s *sentinelStore) spec(via []string) StoreSpec {
	if via == nil {
		via = s.targets()
	}
	spec := StoreSpec{Kind: "sentinel", Addrs: via[2:], Master: s.MasterName(), Via: map[string]string{}}
	for i, server := range s.servers() {
		spec.Via[s.NameOf(server)] = via[i]
	}
	return spec
}

func (s *sentinelStore) close() { s.Close() }

// roles returns the server that the sentinels name, and the other one.
func (s *sentinelStore) roles() (master, other *redistest.Server, err error) {
	addr, err := s.MasterAddr(context.Background())
	switch {
	case err != nil:
		return nil, nil, err
	case addr == s.NameOf(s.Master):
		return s.Master, s.Replica, nil
	default:
		return s.Replica, s.Master, nil
	}
}

func (s *sentinelStore) hurt(f nemesis.Fault, mark func(string, int64)) error {
	master, other, err := s.roles()
	if err != nil {
		return err
	}
	from := nemesis.Mono()
	if strings.HasPrefix(f.Kind, "failover") {
		defer func() { mark(torture.Replaced, from) }()
	}
	switch f.Kind {
	case "failover_stop": // it is alive afterwards, and Sentinel takes ten seconds to demote it
		if err := master.Pause(); err != nil {
			return err
		}
		err := s.FailedOver(other)
		time.Sleep(f.For)
		return errors.Join(err, master.Resume(), s.settle())
	case "failover_cut_off": // by the sentinels and the other server; hosts reach all of them
		s.Relays[master].BlackHole(true)
		err := s.FailedOver(other)
		time.Sleep(f.For)
		s.Relays[master].BlackHole(false)
		return errors.Join(err, s.settle())
	case "failover_unaware": // becomes the master again before it learns that it was demoted
		s.Relays[master].BlackHole(true)
		err := s.FailedOver(other)
		time.Sleep(f.For)
		s.Relays[master].BlackHole(false)
		if err == nil {
			err = other.Pause()
		}
		if err != nil {
			return errors.Join(err, s.settle())
		}
		err = s.FailedOver(master)
		return errors.Join(err, other.Resume(), s.settle())
	case "failover_kill":
		if err := master.Kill(); err != nil {
			return err
		}
		err := s.FailedOver(other)
		return errors.Join(err, master.Restart(), s.settle())
	case "failover_graceful":
		return s.failover(other)
	case "failover_back":
		return errors.Join(s.failover(other), s.failover(master))
	case "sentinel_stop":
		return nemesis.Stop(s.Sentinels[f.Pick%3].Server, f.For)
	case "sentinels_stop": // the master is unknown
		one, two := s.Sentinels[f.Pick%3], s.Sentinels[(f.Pick+1)%3]
		if err := one.Pause(); err != nil {
			return err
		}
		err := nemesis.Stop(two.Server, f.For)
		return errors.Join(err, one.Resume())
	case "store_connections_killed":
		for _, server := range s.servers() {
			kill := server.Client().Do(context.Background(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
			if err := kill.Err(); err != nil {
				return err
			}
		}
		return nil
	}
	return f.Unknown()
}

// failover makes the sentinels promote another server while the master is well.
func (s *sentinelStore) failover(to *redistest.Server) error {
	err := testkit.Poll(90*time.Second, "order a failover", func(ctx context.Context) error {
		// Refused while the previous failover is in progress.
		return s.Sentinels[0].Client().Do(ctx, "SENTINEL", "FAILOVER", s.MasterName()).Err()
	})
	if err != nil {
		return err
	}
	return errors.Join(s.FailedOver(to), s.settle())
}

// settle waits until the master has a replica in sync, and all sentinels know it.
func (s *sentinelStore) settle() error {
	return testkit.Poll(2*time.Minute, "sentinel", func(ctx context.Context) error {
		master, other, err := s.roles()
		if err != nil {
			return err
		}
		for server, want := range map[*redistest.Server]string{master: "state=online", other: "master_link_status:up"} {
			info, err := server.Client().Info(ctx, "replication").Result()
			if err != nil || !strings.Contains(info, want) {
				return fmt.Errorf("%s is not %s: %v", server.Addr(), want, err)
			}
		}
		for _, w := range s.Sentinels {
			about, err := w.Client().Do(ctx, "SENTINEL", "REPLICAS", s.MasterName()).Slice()
			if text := fmt.Sprint(about); err != nil || strings.Contains(text, "s_down") ||
				strings.Contains(text, "disconnected") {
				return fmt.Errorf("a sentinel does not see the replica: %v", err)
			}
		}
		return nil
	})
}
