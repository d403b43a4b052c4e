package redisregistry_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/tickslot/tickslot/cluster/clustertest"
	"github.com/tickslot/tickslot/cluster/redisregistry"
	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/servertest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(quiet{}) // go-redis logs every connection that the tests break
	if err := documentedUser(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	servertest.Main(m, func() error { return goleak.Find() })
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

const (
	canary = servertest.Canary // the password of all users

	// app is the user from docs/redis.md with the permissions that the registry needs. It may
	// access keys with the prefix shop.
	app  = "tickslot"
	shop = "shop:"
)

// rights are the permissions that the registry needs on a single server, besides keys and password.
var rights []string

// documentedUser gives the test servers the user from docs/redis.md, with only the permissions
// listed for the registry.
func documentedUser() error {
	const page = "../../docs/redis.md"
	user, err := redistest.DocumentedUser(page)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	said := regexp.MustCompile("(?sm)^- for the registry alone: `(.*?)`").FindSubmatch(text)
	if said == nil {
		return fmt.Errorf("%s does not list the rights of a user for the registry", page)
	}
	rights = strings.Fields(string(said[1]))
	said = regexp.MustCompile("(?m)^- added to the user of the locks: `(.*?)`").FindSubmatch(text)
	if said == nil {
		return fmt.Errorf("%s does not say which rights a user of the locks lacks", page)
	}
	lacks := slices.DeleteFunc(slices.Clone(rights), func(right string) bool { return slices.Contains(user, right) })
	if more := strings.Fields(string(said[1])); !slices.Equal(more, lacks) {
		return fmt.Errorf("%s: a user of the locks lacks %q, and not %q", page, lacks, more)
	}
	for _, rule := range user {
		if !strings.HasPrefix(rule, "+") || rule == "+cluster|slots" || rule == "+asking" {
			redistest.User = append(redistest.User, rule)
		}
	}
	redistest.User = append(redistest.User, rights...)
	return nil
}

// open returns a registry and closes it when the test ends.
func open(t testing.TB, client redis.UniversalClient, prefix string) *redisregistry.Store {
	t.Helper()
	s := redisregistry.New(client, redisregistry.Options{Prefix: prefix})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// client connects as the documented user and closes the client when the test ends.
func client(t testing.TB, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, Username: app, Password: canary})
	t.Cleanup(func() { c.Close() })
	return c
}

func unique() string { return shop + rand.Text() + ":" }

func TestConformanceMiniredis(t *testing.T) {
	t.Parallel()
	clustertest.Run(t, clustertest.Harness{New: func(t testing.TB) clustertest.Registries {
		// Each check gets its own server: miniredis executes one command at a time, so checks that
		// share a server would wait for each other.
		c := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
		t.Cleanup(func() { c.Close() })
		return clustertest.Registries{Store: open(t, c, unique()), Other: open(t, c, unique())}
	}})
}

// A proxy counts the round trips on the wire and can make the server hang.
func TestConformanceSingle(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	direct := client(t, server.Addr())
	clustertest.Run(t, clustertest.Harness{New: func(t testing.TB) clustertest.Registries {
		if !strings.Contains(t.Name(), "/calls/") {
			return clustertest.Registries{Store: open(t, direct, unique()), Other: open(t, direct, unique())}
		}
		proxy := redistest.NewCountingProxyFor(t, server.Addr())
		return clustertest.Registries{Store: open(t, client(t, proxy.Addr()), unique()),
			Other: open(t, direct, unique()), RoundTrips: proxy.RoundTrips,
			Hang: func() func() {
				proxy.BlackHole(true)
				return func() { proxy.BlackHole(false) }
			}}
	}})
}

func TestConformanceCluster(t *testing.T) {
	t.Parallel()
	nodes := redistest.NewCluster(t, 3)
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: nodes.Addrs(), Username: app, Password: canary})
	t.Cleanup(func() { c.Close() })
	clustertest.Run(t, clustertest.Harness{New: func(t testing.TB) clustertest.Registries {
		return clustertest.Registries{Store: open(t, c, unique()), Other: open(t, c, unique())}
	}})
}
