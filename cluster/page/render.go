package page

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page/internal/pagekit"
	"github.com/tickslot/tickslot/cluster/page/internal/readcache"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/inert"
	"github.com/tickslot/tickslot/internal/mask"
)

//go:embed templates/*.html
var templates embed.FS

// A Frame is what a template is executed with.
type Frame struct {
	Title  string
	Name   string // of the View
	CanAct bool   // the viewer may change things
	Data   any    // of the Content
}

// A frame is what the layout around it is executed with.
type frame struct {
	Frame
	Links      []Link
	ActiveLink string   // the name of the Link to which the page belongs
	Host       string   // that shows the page
	Live       bool     // the script keeps it up to date
	Done       *doneBar // nil: nothing was just done
	Status     *status
	Bar        template.HTML // of the Status
	Body       template.HTML
}

func (p *Page) frame(name string, access Access, content Content) frame {
	f := frame{Frame: Frame{content.Title, name, access.Act, content.Data}, ActiveLink: name,
		Host: p.config.Registry.Holder().String(), Live: true}
	for _, s := range p.sections {
		f.Links = append(f.Links, s.Links...)
		if _, own := s.Views[name]; own {
			f.ActiveLink = activeLink(name, s.Links)
		}
	}
	return f
}

// addBar adds what is above each page. A page without it is better than none.
func (p *Page) addBar(ctx context.Context, f *frame) {
	f.Status = p.read(readcache.WithPatience(ctx, readcache.Patience)).status(f.Title, p.timers.scheduler())
	f.Bar, _ = p.render.bar.html(f.Status)
}

// activeLink returns the name of the link to which a page of a section belongs: timers for timer.
func activeLink(name string, links []Link) string {
	for _, l := range links {
		if l.Name == name || len(links) == 1 || name != "" && strings.HasPrefix(l.Name, name) {
			return l.Name
		}
	}
	return name
}

// A renderer has the templates.
type renderer struct {
	layout, bar *pageTemplate
	bodies      map[string]*pageTemplate
}

// A pageTemplate shows ages as of an instant. It is executed by one goroutine at a time.
type pageTemplate struct {
	template *template.Template

	mu    sync.Mutex // held while it is executed
	clock clock
}

// execute renders data with ages as of an instant; zero: as of now.
func (p *pageTemplate) execute(asOf time.Time, data any) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clock.now = asOf
	var out bytes.Buffer
	if err := p.template.Execute(&out, data); err != nil {
		return nil, err
	}
	return inert.Bytes(out.Bytes()), nil
}

// html renders what goes into another template as it is: it was escaped when it was rendered.
func (p *pageTemplate) html(data any) (template.HTML, error) {
	out, err := p.execute(time.Time{}, data)
	return template.HTML(out), err
}

func newRenderer(sections []Section) (*renderer, error) {
	base, err := template.New("").Funcs(funcs).Funcs((&clock{}).funcs()).ParseFS(templates, "templates/parts.html")
	if err != nil {
		return nil, err
	}
	r := &renderer{bodies: map[string]*pageTemplate{}}
	add := func(files fs.FS, path, name string) (*pageTemplate, error) {
		p := &pageTemplate{}
		t, err := base.Clone()
		if err != nil {
			return nil, err
		}
		text, err := fs.ReadFile(files, path)
		if err != nil {
			return nil, fmt.Errorf("the template of %q: %w", name, err)
		}
		p.template, err = t.Funcs(p.clock.funcs()).New(name).Parse(string(text))
		return p, err
	}
	if r.bar, err = add(templates, "templates/bar.html", "bar"); err != nil {
		return nil, err
	}
	if r.layout, err = add(templates, "templates/layout.html", "layout"); err != nil {
		return nil, err
	}
	for _, name := range []string{"confirm", "error"} {
		if r.bodies[name], err = add(templates, "templates/"+name+".html", name); err != nil {
			return nil, err
		}
	}
	for _, s := range sections {
		for name := range s.Views {
			if s.Templates == nil {
				return nil, fmt.Errorf("the section of %q has no Templates", name)
			}
			file := name
			switch name {
			case "":
				file = "overview"
			case "leaders": // they are leases of a kind
				file = "leases"
			}
			if r.bodies[name], err = add(s.Templates, file+".html", file); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

// body renders what is inside the frame, with nothing hidden.
func (r *renderer) body(name string, f Frame) ([]byte, error) {
	var asOf time.Time
	if seen, ok := f.Data.(interface{ AsOf() time.Time }); ok {
		asOf = seen.AsOf()
	}
	return r.bodies[name].execute(asOf, f)
}

// html answers with a page in its frame.
func (p *Page) html(w http.ResponseWriter, r *http.Request, status int, name string, f frame) {
	body, err := p.render.body(name, f.Frame)
	var out []byte
	if err == nil {
		f.Body = template.HTML(body) // it was escaped when it was rendered
		out, err = p.render.layout.execute(time.Time{}, f)
	}
	if err != nil {
		http.Error(w, "this page cannot be shown: "+inert.Text(mask.Text(err.Error())), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	write(w, r, status, out)
}

// json answers with data as JSON.
func (p *Page) json(w http.ResponseWriter, status int, data any) {
	text, err := json.MarshalIndent(data, "", "  ")
	if err != nil {
		status = http.StatusInternalServerError
		text, _ = json.Marshal(map[string]string{"error": err.Error()})
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(inert.JSON(text), '\n'))
}

// fail answers with an error, as HTML or JSON.
func (p *Page) fail(w http.ResponseWriter, r *http.Request, status int, err error) {
	err = mask.Error(err)
	if wantsJSON(r) {
		p.json(w, status, map[string]string{"error": err.Error()})
		return
	}
	f := frame{Frame: Frame{Title: http.StatusText(status), Name: "error", Data: err.Error()}}
	if status != http.StatusForbidden {
		f = p.frame("error", Access{}, Content{f.Title, f.Data})
		f.Live = errors.Is(err, readcache.ErrNoAnswer) // then the page comes when there is one
		p.addBar(r.Context(), &f)
	}
	p.html(w, r, status, "error", f)
}

func wantsJSON(r *http.Request) bool {
	accept := r.Header.Get("Accept")
	return strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/html")
}

// funcs are for templates, with those of a clock.
var funcs = template.FuncMap{
	"took": pagekit.Took, "units": pagekit.Units, "host": host, "holder": holderText, "join": strings.Join,
	"url": URL, "asset": assetURL, "slot": slotText,
	"role": func(lock string) string { return strings.TrimPrefix(lock, "leader:") },
	"table": func(caption string, runs []cluster.HistoryRun, timer bool) runTable {
		return runTable{caption, runs, timer}
	},
	"happened": func(caption string, events []cluster.HistoryEvent) eventTable { return eventTable{caption, events} },
}

type runTable struct {
	Caption string
	Runs    []cluster.HistoryRun
	Timer   bool // it has a column for the timer
}

type eventTable struct {
	Caption string
	Events  []cluster.HistoryEvent
}

// host shows the host of a process; the tooltip has all of the holder.
func host(h dlock.Holder) template.HTML {
	if h == (dlock.Holder{}) {
		return "–"
	}
	return template.HTML(fmt.Sprintf(`<bdi class="holder" title="%s">%s</bdi>`, template.HTMLEscapeString(h.String()),
		template.HTMLEscapeString(h.Host)))
}

func holderText(h dlock.Holder) string {
	if h == (dlock.Holder{}) {
		return "–"
	}
	return h.String()
}

// slotText shows a lease's slot.
func slotText(l cluster.Lease) string {
	if l.Mutex {
		return "–"
	}
	return fmt.Sprint(l.Slot)
}
