package service

import (
	"context"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/cluster/page/durablepage"
	"github.com/tickslot/tickslot/cluster/page/outboxpage"
	"github.com/tickslot/tickslot/health"
)

// Probes serves /livez, /readyz and /startupz for all running parts. The names of its checks begin
// with timers, durable or outbox, for example /readyz/outbox.few-dead-messages. Probes also runs
// the checks in more.
func (s *Service) Probes(more ...health.Check) *health.Handler {
	sources := map[string]health.Source{"timers": s.timers}
	if s.worker != nil {
		sources["durable"] = ifUsed{s.worker, s.hasRuns}
	}
	if s.relay != nil {
		sources["outbox"] = s.relay
	}
	return health.New(health.Join(sources), more...)
}

// ifUsed is a source that succeeds as long as its part has nothing to do and therefore does not
// run.
type ifUsed struct {
	health.Source
	used func() bool
}

func (i ifUsed) Live() error    { return i.ask(i.Source.Live) }
func (i ifUsed) Started() error { return i.ask(i.Source.Started) }
func (i ifUsed) Ready() error   { return i.ask(i.Source.Ready) }

func (i ifUsed) Checks() map[string]func() error {
	checks := map[string]func() error{}
	for name, f := range i.Source.Checks() {
		checks[name] = func() error { return i.ask(f) }
	}
	return checks
}

func (i ifUsed) ask(f func() error) error {
	if !i.used() {
		return nil
	}
	return f()
}

// Metrics serves the metrics of Config.Registerer for Prometheus. If that cannot be gathered
// (prometheus.WrapRegistererWith), Metrics serves the default registry.
func (s *Service) Metrics() http.Handler {
	return promhttp.HandlerFor(s.gatherer, promhttp.HandlerOpts{})
}

// Page returns the operator's page with the settings in config. Set Authorize, which decides who
// may read it, and Hosts. The service sets Registry, Timers and Logger, and adds the sections for
// durable runs and the outbox. Mount the page below any path that ends with a slash. Run returns
// the faults of config. Run also ends the page's live views before your parts stop, so that a
// server does not wait for them.
func (s *Service) Page(config page.Config) http.Handler {
	config.Registry = s.registry
	config.Timers = s.timers
	orDefault(&config.Logger, s.config.Logger)
	sections := config.Sections
	config.Sections = nil
	if s.stores.Runs != nil {
		config.Sections = append(config.Sections, durablepage.New(s.stores.Runs))
	}
	if s.stores.Outbox != nil {
		config.Sections = append(config.Sections, outboxpage.New(s.stores.Outbox))
	}
	config.Sections = append(config.Sections, sections...)
	p, err := page.New(config)
	s.pages.add(p, err)
	if err != nil {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "The settings of this page are wrong. The log says how.", http.StatusInternalServerError)
		})
	}
	return p
}

// pages holds the pages that Page has created.
type pages struct {
	mu     sync.Mutex
	all    []*page.Page
	wrong  []error
	closed bool
}

func (p *pages) add(made *page.Page, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err != nil:
		p.wrong = append(p.wrong, err)
	case p.closed:
		made.Close()
	default:
		p.all = append(p.all, made)
	}
}

func (p *pages) faults() []error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wrong
}

// run closes the pages when ctx ends.
func (p *pages) run(ctx context.Context) error {
	<-ctx.Done()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, made := range p.all {
		made.Close()
	}
	return nil
}
