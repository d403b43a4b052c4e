// Package serve serves the operator's page, the metrics and the probes of a fleet as a standalone
// process.
//
// It is closed to strangers. If users are configured, each request except a probe must log in.
// Without users, only this machine gets answers. The page is read-only unless Options.Control is
// set.
//
// This process is not a host of the fleet: it writes nothing to the registry except the changes of
// operators.
package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tickslot/tickslot"
	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/cluster/page/durablepage"
	"github.com/tickslot/tickslot/cluster/page/outboxpage"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/health"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/timer/control"
)

// readHeaderTimeout bounds how long a client may take to send its header.
const readHeaderTimeout = 5 * time.Second

// Options say what is served, where, and to whom.
type Options struct {
	Listen      string   // an address with a port
	Hosts       []string // names under which browsers reach it, in addition to addresses and localhost
	Users       *Users   // if nil, only this machine has access
	Control     bool     // users may also make changes
	Payloads    bool     // users also see payloads and headers
	Certificate *tls.Certificate
	Environment string

	Registry cluster.Store
	Locks    dlock.DistributedLock
	Durable  *durable.Store // nil if there are no durable runs
	Outbox   *outbox.Outbox // nil if there is no outbox

	Logger *slog.Logger
	// Ready is called with the URL once the server listens.
	Ready func(url string)
}

// Check returns the faults of the options. It rejects an address that other machines can reach
// unless users must log in.
func (o Options) Check() error {
	host, _, err := net.SplitHostPort(o.Listen)
	switch {
	case err != nil:
		return errors.New("--listen has to be an address with a port, such as 127.0.0.1:8080, or :8080 for all " +
			"networks")
	case o.Users == nil && !loopback(host):
		return fmt.Errorf("--listen %s can be reached from other machines, and there is no log-in: give it --users "+
			"FILE (lines of \"htpasswd -B\"), or TICKSLOT_USER and TICKSLOT_PASSWORD, or listen on 127.0.0.1", o.Listen)
	case o.Users == nil && o.Control:
		return errors.New("--control needs a log-in, which says who changes something: give it --users FILE (lines " +
			"of \"htpasswd -B\"), or TICKSLOT_USER and TICKSLOT_PASSWORD")
	}
	return nil
}

// Open reports whether passwords cross a network unencrypted.
func (o Options) Open() bool {
	host, _, _ := net.SplitHostPort(o.Listen)
	return o.Certificate == nil && !loopback(host)
}

// loopback reports whether a host is reachable only from this machine.
func loopback(host string) bool {
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// Run serves until ctx ends.
func Run(ctx context.Context, o Options) error {
	if err := o.Check(); err != nil {
		return err
	}
	s, err := newServer(o)
	if err != nil {
		return err
	}
	parts := []tickslot.Part{tickslot.Named("server", tickslot.Server(s.http(ctx)))}
	if o.Control { // the registry's Run writes operators' changes
		parts = append([]tickslot.Part{tickslot.Named("registry", s.registry)}, parts...)
	}
	defer context.AfterFunc(ctx, func() { s.stopping.Store(true) })()
	return tickslot.Run(ctx, parts...)
}

// A server answers the requests.
type server struct {
	Options
	viewer   *viewer
	registry *cluster.Registry
	page     *page.Page
	metrics  *prometheus.Registry
	probes   *health.Handler
	stopping atomic.Bool
}

func newServer(o Options) (*server, error) {
	s := &server{Options: o, viewer: &viewer{Store: o.Registry}, metrics: prometheus.NewRegistry()}
	var err error
	s.registry, err = cluster.New(cluster.Config{Store: s.viewer, Locks: o.Locks, Environment: o.Environment,
		Registerer: s.metrics, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	config := page.Config{Registry: s.registry, Hosts: o.Hosts, Logger: o.Logger, Authorize: s.access}
	if o.Control {
		config.Control = control.New(control.Config{Store: o.Locks})
	}
	if o.Durable != nil {
		config.Sections = append(config.Sections, durablepage.New(o.Durable))
	}
	if o.Outbox != nil {
		config.Sections = append(config.Sections, outboxpage.New(o.Outbox))
	}
	if s.page, err = page.New(config); err != nil {
		return nil, err
	}
	if err := s.metrics.Register(backlog{o.Durable, o.Outbox}); err != nil {
		return nil, err
	}
	s.probes = health.New(nil, health.Check{Name: "registry-answers", Func: s.viewer.check},
		health.Check{Name: "serving", Func: s.serving, Required: true})
	s.probes.Details = func(r *http.Request) bool { _, err := s.admit(r); return err == nil }
	return s, nil
}

// serving returns an error when no further requests should be sent.
func (s *server) serving() error {
	if s.stopping.Load() {
		return errors.New("it stops")
	}
	return nil
}

func (s *server) http(ctx context.Context) *http.Server {
	mux := http.NewServeMux()
	for _, probe := range []string{"/livez", "/readyz", "/readyz/", "/startupz"} {
		mux.Handle(probe, s.probes)
	}
	mux.Handle("/metrics", s.guard(http.HandlerFunc(s.scrape)))
	mux.Handle("/", s.guard(s.page))
	web := &http.Server{Addr: s.Listen, Handler: mux, ReadHeaderTimeout: readHeaderTimeout,
		ErrorLog: slog.NewLogLogger(s.Logger.Handler(), slog.LevelDebug)}
	scheme := "http"
	if s.Certificate != nil {
		scheme = "https"
		web.TLSConfig = &tls.Config{Certificates: []tls.Certificate{*s.Certificate}}
	}
	web.BaseContext = func(l net.Listener) context.Context {
		s.Ready(scheme + "://" + l.Addr().String() + "/")
		return context.WithoutCancel(ctx)
	}
	web.RegisterOnShutdown(s.page.Close)
	return web
}

// scrape reads the fleet and responds with its metrics.
func (s *server) scrape(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), scrapeTimeout)
	defer cancel()
	_, _ = s.registry.Snapshot(ctx) // the metrics show an error
	promhttp.HandlerFor(s.metrics, promhttp.HandlerOpts{}).ServeHTTP(w, r)
}

type userKey struct{} // context key of a request that has logged in

var (
	errLogIn     = errors.New("log in")
	errElsewhere = errors.New("only the machine that this runs on may read it: --users FILE asks others for a log-in")
)

// guard passes on only requests that may read.
func (s *server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, err := s.admit(r)
		switch {
		case errors.Is(err, errLogIn):
			w.Header().Set("WWW-Authenticate", `Basic realm="tickslot", charset="UTF-8"`)
			w.Header().Set("Cache-Control", "no-store")
			http.Error(w, err.Error(), http.StatusUnauthorized)
		case err != nil:
			http.Error(w, err.Error(), http.StatusForbidden)
		default:
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
		}
	})
}

// admit returns the user of a request, or "" if there are no users. The error says why the request
// is refused.
func (s *server) admit(r *http.Request) (user string, err error) {
	if s.Users != nil {
		name, password, ok := r.BasicAuth()
		if !ok || !s.Users.Check(r.Context(), name, password) {
			return "", errLogIn
		}
		return name, nil
	}
	// The name of another site may resolve to our address. The browser would then treat our page as
	// part of that site.
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if !page.Loopback(r).Read || !loopback(host) {
		return "", errElsewhere
	}
	return "", nil
}

// access returns what the page permits an admitted user to do.
func (s *server) access(r *http.Request) page.Access {
	user, ok := r.Context().Value(userKey{}).(string)
	return page.Access{Read: ok, Act: ok && user != "" && s.Control, Payloads: ok && s.Payloads, By: user}
}
