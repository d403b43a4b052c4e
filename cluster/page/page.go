package page

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page/internal/readcache"
	"github.com/tickslot/tickslot/internal/mask"
	"github.com/tickslot/tickslot/timer"
	"github.com/tickslot/tickslot/timer/control"
)

const (
	// defaultRefreshInterval is the default of Config.RefreshInterval.
	defaultRefreshInterval = 2 * time.Second
	minRefreshInterval     = 100 * time.Millisecond

	changeTimeout = 10 * time.Second // of what an Action does

	// bucketsTTL is for how long viewers share what a chart shows: a month of buckets is much to
	// read.
	bucketsTTL = 5 * time.Second
)

// Config has the settings of a Page. Registry and Authorize are required. New returns all faults of
// the settings at once.
type Config struct {
	// Registry knows the hosts, leases, events and runs. Its Run should be running: without it,
	// this process is on no page, and changes by operators are only in the log. Required.
	Registry *cluster.Registry
	// Timers is the scheduler of this process. The page takes schedules, next ticks and the reasons
	// of skipped ticks from it. Default nil: these are not shown.
	Timers *timer.Scheduler
	// Control pauses, limits and triggers timers, and cancels runs. Default: the Control of Timers;
	// without both, timers cannot be changed on the page.
	Control *control.Control
	// Sections are further pages, as durablepage.New and outboxpage.New return. Default: none.
	Sections []Section

	// Authorize says who sends a request, and what that user may do: Loopback, the result of
	// BasicAuth or ProxyHeader, or a function of your own. It is called for each request; if it
	// panics, the request gets no answer. Required: nobody reads the page unless you say who.
	Authorize func(r *http.Request) Access
	// Hosts are the names under which browsers reach the page, in lower case and without port.
	// localhost, and addresses in place of names, are always accepted. "*" accepts any name; pages
	// of other sites can then read this one if Authorize decides by addresses. Default: none but
	// localhost and addresses.
	Hosts []string

	// RefreshInterval is how often a viewer's page is updated. At most 1,000 pages are updated at
	// once; further ones change only when they are reloaded. At least 100 ms. Default 2 s.
	RefreshInterval time.Duration
	// Logger gets a line for each change that a user makes. Default slog.Default().
	Logger *slog.Logger
}

// A Page is the operator's page: an http.Handler. Make one with New.
type Page struct {
	config   Config
	guard    *http.CrossOriginProtection
	sections []Section // those of this package are the first and the last
	views    map[string]View
	actions  map[string]Action
	render   *renderer
	live     *live
	timers   *timers

	snapshots    readcache.Cache[struct{}]
	latest       atomic.Pointer[cluster.Snapshot] // nil: nothing was read yet
	failingSince atomic.Pointer[time.Time]        // nil: the latest is not stale
	attention    readcache.Cache[[]Notice]        // by the index of the section
}

// New returns a Page, or an error that lists every fault of the settings. It starts nothing, and
// calls no store.
func New(config Config) (*Page, error) {
	if config.RefreshInterval == 0 {
		config.RefreshInterval = defaultRefreshInterval
	}
	config.Logger = mask.Logger(config.Logger)
	if config.Control == nil && config.Timers != nil {
		config.Control = config.Timers.Control()
	}
	var errs []error
	if config.Registry == nil {
		errs = append(errs, errors.New("there is no Registry: make one with cluster.New"))
	}
	if config.Authorize == nil {
		errs = append(errs, errNoAuthorize)
	}
	if config.RefreshInterval < minRefreshInterval {
		errs = append(errs, fmt.Errorf("the RefreshInterval %v is too short: use at least %v",
			config.RefreshInterval, minRefreshInterval))
	}
	for _, host := range config.Hosts {
		if host == "" || strings.ContainsAny(host, "/ ") || host != "*" && hostname(host) != host {
			errs = append(errs, fmt.Errorf("%q in Hosts: use a name in lower case, without scheme and port", host))
		}
	}
	p := &Page{config: config, guard: http.NewCrossOriginProtection(), views: map[string]View{},
		actions: map[string]Action{}}
	p.snapshots.Always, p.attention.Always = true, true // what they ask shares its reads
	p.timers = &timers{config: config, hanging: map[string]<-chan time.Time{}}
	p.timers.buckets.TTL = bucketsTTL
	p.sections = append(append([]Section{p.fleet()}, config.Sections...), p.history())
	for _, s := range p.sections {
		errs = append(errs, p.add(s))
	}
	var err error
	if p.render, err = newRenderer(p.sections); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("page: %w", err)
	}
	p.live = &live{interval: config.RefreshInterval, topics: map[string]*topic{}, readers: map[string]int{},
		closed: make(chan struct{})}
	return p, nil
}

// add adds the pages and actions of a section.
func (p *Page) add(s Section) error {
	for name, v := range s.Views {
		if _, there := p.views[name]; there || slices.Contains(fixedPages, name) || icons[name] != "" {
			return fmt.Errorf("two Sections have a page called %q", name)
		}
		p.views[name] = v
	}
	for name, a := range s.Actions {
		if _, there := p.actions[name]; there {
			return fmt.Errorf("two Sections have an action called %q", name)
		}
		p.actions[name] = a
	}
	return nil
}

// Close ends the streams to viewers; their browsers connect again later. Give it to
// http.Server.RegisterOnShutdown: Shutdown waits until all requests have ended.
func (p *Page) Close() { p.live.close() }

// These pages have no View.
const (
	pageConfirm = "confirm"
	pageDo      = "do"
	pageAPI     = "openapi.json"
	pageStyle   = "page.css"
	pageScript  = "page.js"
)

var fixedPages = []string{pageConfirm, pageDo, pageAPI, pageStyle, pageScript}

// ServeHTTP implements http.Handler. What follows the last slash of the path says which page: so it
// does not matter under which prefix it stands, and whether that is stripped.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setHeaders(w.Header())
	access, err := p.admit(r)
	switch {
	case err != nil && access.Deny != nil:
		access.Deny.ServeHTTP(w, r)
		return
	case err != nil:
		p.fail(w, r, http.StatusForbidden, err)
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), payloadsKey{}, access.Payloads))
	name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	methods := []string{http.MethodGet, http.MethodHead}
	switch name {
	case pageDo:
		methods = []string{http.MethodPost}
	case pageConfirm:
		methods = append(methods, http.MethodPost)
	}
	if !slices.Contains(methods, r.Method) {
		w.Header().Set("Allow", strings.Join(methods, ", "))
		p.fail(w, r, http.StatusMethodNotAllowed, fmt.Errorf("this URL takes %s", strings.Join(methods, ", ")))
		return
	}
	switch name {
	case pageDo:
		p.do(w, r, access)
	case pageConfirm:
		p.confirm(w, r, access)
	default:
		if a, ok := assets[name]; ok {
			a.serve(w, r)
		} else if color, ok := icons[name]; ok {
			asset{kind: "image/svg+xml", text: icon(color)}.serve(w, r)
		} else {
			p.view(w, r, access, name)
		}
	}
}

// view answers with a page.
func (p *Page) view(w http.ResponseWriter, r *http.Request, access Access, name string) {
	v, ok := p.views[name]
	if !ok {
		p.fail(w, r, http.StatusNotFound, fmt.Errorf("%w: %q", ErrNotFound, name))
		return
	}
	accept := r.Header.Get("Accept")
	if strings.Contains(accept, eventStream) {
		p.stream(w, r, access, name)
		return
	}
	ctx := readcache.WithPatience(r.Context(), readcache.Patience)
	content, err := v(ctx, r.URL.Query())
	switch {
	case err != nil:
		p.fail(w, r, statusOf(err), err)
	case wantsJSON(r):
		p.json(w, http.StatusOK, content.Data)
	default:
		f := p.frame(name, access, content)
		p.addBar(ctx, &f)
		f.Done = p.takeDone(w, r, access)
		p.html(w, r, http.StatusOK, name, f)
	}
}

// stream sends a page again and again.
func (p *Page) stream(w http.ResponseWriter, r *http.Request, access Access, name string) {
	q := r.URL.Query()
	key := fmt.Sprintf("%s?%s %v %v", name, q.Encode(), access.Act, access.Payloads)
	shown := Access{Read: access.Read, Act: access.Act} // the same for all who share it
	p.live.serve(w, r, key, readerOf(r, access), func(ctx context.Context) ([]byte, error) {
		ctx = readcache.WithPatience(ctx, readcache.Patience)
		content, err := p.views[name](ctx, q)
		if err != nil {
			return nil, err
		}
		f := p.frame(name, shown, content)
		p.addBar(ctx, &f)
		body, err := p.render.body(name, f.Frame)
		return append([]byte(f.Bar), body...), err
	})
}
