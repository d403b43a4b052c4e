package page

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page/internal/pagekit"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/internal/inert"
	"github.com/tickslot/tickslot/internal/mask"
)

// maxBody is how many bytes a request may have that changes something: a payload of 1 MiB, of which
// each byte is three in a form.
const maxBody = 4 << 20

// A question is the content of the page that asks for confirmation of an action.
type question struct {
	Title       string
	Description string
	Destructive bool
	Of          []string // what it is done to, if these are several
	Fields      []Field
	Post        string // URL
	Chosen      string // what it is done to, if it is too much for a URL
	Back        string // URL
	Fault       string // why what was typed is not done; "": it is asked for the first time
	Force       bool   // what it is about is not known: who sends the form wants it all the same
}

// errNotKnown is the answer to a client that asks for JSON. People get the form again.
var errNotKnown error = &BadRequestError{"no host and no store knows it: check how its name is spelt. Send " +
	"force=yes to do it all the same"}

var errForeign = errors.New("this request comes from another site")

// ask returns the page that asks for confirmation. Fields have the values that were typed, if any.
func (p *Page) ask(ctx context.Context, a Action, v, typed url.Values, access Access) (question, frame) {
	q := question{Title: a.Title(v), Description: a.Description, Destructive: a.Destructive,
		Post: "do?" + v.Encode(), Back: a.Back(v)}
	if many := chosen(a, v); len(many) > 1 {
		q.Of = many
		if len(q.Post) > pagekit.MaxURL {
			q.Chosen = url.Values{a.Many: many}.Encode()
			short := maps.Clone(v)
			short.Del(a.Many)
			q.Post = "do?" + short.Encode()
		}
	}
	if a.TypeName != "" {
		q.Fields = append(q.Fields, Field{Name: typedName, Label: "Type its name", Required: true,
			Help: fmt.Sprintf("It cannot be taken back. The name is %s", v.Get(a.TypeName))})
	}
	q.Fields = append(append(q.Fields, a.Fields...), Field{Name: "note", Label: "Why", Help: "For the log, and for " +
		"those who find it later."})
	for i, f := range q.Fields {
		if typed.Has(f.Name) {
			q.Fields[i].Value = typed.Get(f.Name)
		}
	}
	f := p.frame(pageConfirm, access, Content{q.Title, q})
	f.Live = false
	p.addBar(ctx, &f)
	return q, f
}

// typedName is the field in which a user types the name of what an action is about.
const typedName = "typed"

// checkName returns an error if the action wants a name typed and the user typed another. The name
// counts as it is and as the page shows it.
func (a *Action) checkName(r *http.Request, v url.Values) error {
	name, typed := strings.TrimSpace(v.Get(a.TypeName)), strings.TrimSpace(r.PostForm.Get(typedName))
	if a.TypeName == "" || wantsJSON(r) || typed == name || typed == inert.Text(name) {
		return nil
	}
	return &BadRequestError{fmt.Sprintf("Type its name: %q is not the name of what would be changed, %q", typed, name)}
}

// again asks once more for what a user has typed wrong, with all that was typed.
func (p *Page) again(w http.ResponseWriter, r *http.Request, access Access, a Action, v url.Values, err error) {
	if wantsJSON(r) {
		p.fail(w, r, http.StatusBadRequest, err)
		return
	}
	q, f := p.ask(r.Context(), a, v, r.PostForm, access)
	q.Fault, q.Force = mask.Text(err.Error()), err == errNotKnown
	if q.Force {
		q.Fault = "No host and no store knows it: check how its name is spelt. Do it all the same?"
	}
	f.Data = q
	p.html(w, r, http.StatusBadRequest, pageConfirm, f)
}

// checkTyped refuses what no field takes but one of several lines.
func checkTyped(f Field, text string) error {
	switch {
	case f.Required && text == "":
		return &BadRequestError{fmt.Sprintf("%s: fill it in", f.Label)}
	case !f.Multiline && (!utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl)):
		return &BadRequestError{fmt.Sprintf("%s: %q is no text, or has a control character: take it out", f.Label,
			text)}
	}
	return nil
}

// posted returns the body of a form, which another site may not send; empty: it is no form.
func (p *Page) posted(w http.ResponseWriter, r *http.Request) (url.Values, error) {
	if r.Method != http.MethodPost {
		return nil, nil
	}
	if err := p.guard.Check(r); err != nil {
		return nil, fmt.Errorf("%w: %w", errForeign, err)
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if err := r.ParseForm(); err != nil {
		return nil, &BadRequestError{err.Error()}
	}
	return r.PostForm, nil
}

// action returns what a request asks for, and adds to v what was chosen in a form: all of it, or in
// the field chosen as in a query, so that browsers do not change it.
func (p *Page) action(w http.ResponseWriter, r *http.Request, v url.Values) (Action, error) {
	form, err := p.posted(w, r)
	if err != nil {
		return Action{}, err
	}
	if !v.Has("action") && form.Has("action") {
		v.Set("action", form.Get("action"))
	}
	a, ok := p.actions[v.Get("action")]
	if !ok {
		return Action{}, fmt.Errorf("%w: no action %q", ErrNotFound, v.Get("action"))
	}
	if a.Many != "" {
		more, err := url.ParseQuery(form.Get("chosen"))
		if err != nil {
			return Action{}, &BadRequestError{"chosen: " + err.Error()}
		}
		v[a.Many] = slices.Concat(v[a.Many], form[a.Many], more[a.Many])
	}
	if a.Many != "" && len(chosen(a, v)) == 0 {
		return Action{}, &BadRequestError{"nothing is chosen: go back, and tick what it should be done to"}
	}
	return a, nil
}

// chosen are the values of an action that is about many.
func chosen(a Action, v url.Values) []string {
	return slices.DeleteFunc(slices.Clone(v[a.Many]), func(value string) bool { return value == "" })
}

// each returns the values for each thing that an action is about.
func each(a Action, v url.Values) (list []url.Values) {
	if a.Many == "" {
		return []url.Values{v}
	}
	for _, value := range chosen(a, v) {
		one := maps.Clone(v)
		one.Set(a.Many, value)
		list = append(list, one)
	}
	return list
}

// confirm asks for confirmation of an action, and for its fields.
func (p *Page) confirm(w http.ResponseWriter, r *http.Request, access Access) {
	v := r.URL.Query()
	if !access.Act {
		p.fail(w, r, http.StatusForbidden, errNoAct)
		return
	}
	a, err := p.action(w, r, v)
	if err != nil {
		p.fail(w, r, statusOf(err), err)
		return
	}
	_, f := p.ask(r.Context(), a, v, nil, access)
	p.html(w, r, http.StatusOK, pageConfirm, f)
}

// do changes something.
func (p *Page) do(w http.ResponseWriter, r *http.Request, access Access) {
	switch {
	case !access.Act:
		p.fail(w, r, http.StatusForbidden, errNoAct)
		return
	case access.By == "":
		p.fail(w, r, http.StatusForbidden, errNoName)
		return
	}
	v := r.URL.Query() // what it is done to: the body has the fields, and what was chosen
	a, err := p.action(w, r, v)
	if err != nil {
		p.fail(w, r, statusOf(err), err)
		return
	}
	about := maps.Clone(v)
	for _, f := range a.Fields {
		v.Set(f.Name, strings.TrimSpace(r.PostForm.Get(f.Name)))
		if err := checkTyped(f, v.Get(f.Name)); err != nil {
			p.again(w, r, access, a, about, err)
			return
		}
	}
	if err := a.checkName(r, v); err != nil {
		p.again(w, r, access, a, about, err)
		return
	}
	by := driver.Cause{By: access.By, Note: strings.TrimSpace(r.PostForm.Get("note"))}
	if err := by.Validate(); err != nil {
		p.again(w, r, access, a, about, &BadRequestError{"Why: " + err.Error()})
		return
	}
	// A client that disconnects must not leave a change half done.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), changeTimeout)
	defer cancel()
	all := each(a, v)
	for _, one := range all {
		if a.Known != nil && r.PostForm.Get("force") != "yes" && !a.Known(ctx, one) {
			p.again(w, r, access, a, about, errNotKnown)
			return
		}
	}
	var back url.Values
	if !wantsJSON(r) {
		back = a.inverse(ctx, v)
	}
	var dones []string
	var failed error
	var failedOne url.Values
	for _, one := range all {
		done, err := a.Do(ctx, one, by)
		p.record(r, a, one, by, done, err)
		if err == nil {
			dones = append(dones, done)
		} else if failed == nil {
			failed, failedOne = err, one
		}
	}
	switch {
	case failed != nil && len(dones) > 0:
		p.fail(w, r, statusOf(failed), fmt.Errorf("done to %d of %d: %s: %w", len(dones), len(all),
			a.Title(failedOne), failed))
	case failed != nil && statusOf(failed) == http.StatusBadRequest:
		p.again(w, r, access, a, about, failed)
	case failed != nil:
		p.fail(w, r, statusOf(failed), fmt.Errorf("%s: %w", a.Title(failedOne), failed))
	case wantsJSON(r):
		p.json(w, http.StatusOK, map[string]string{"done": strings.Join(dones, "; ")})
	default:
		u, _ := url.Parse(a.Back(v))
		q := u.Query()
		q.Set("done", v.Get("action"))
		u.RawQuery = q.Encode()
		said := v.Get("action")
		if back != nil {
			said += "?" + back.Encode()
		}
		setDone(w, said, 60)
		// http.Redirect makes the URL absolute, and does not know a prefix that was stripped.
		w.Header().Set("Location", u.String())
		w.WriteHeader(http.StatusSeeOther)
	}
}

// record writes who has done what to the log and to the registry.
func (p *Page) record(r *http.Request, a Action, v url.Values, by driver.Cause, done string, err error) {
	title := inert.Text(a.Title(v))
	args := []any{"action", v.Get("action"), "what", title, "by", inert.Text(by.By), "note", inert.Text(by.Note),
		"peer", r.RemoteAddr}
	if err != nil {
		p.config.Logger.Warn("page: an operator's change failed, and may or may not be in force",
			append(args, "err", inert.Text(err.Error()))...)
		return
	}
	p.config.Logger.Info("page: an operator changed something", append(args, "done", inert.Text(done))...)
	about := ""
	if a.About != nil {
		about = a.About(v)
	}
	p.config.Registry.RecordEvent(cluster.Event{Kind: cluster.EventOperator, Name: about, Slot: -1,
		Text: inert.Text(by.Did(title + ": " + done))})
}

// Duration parses a length of time that a user has typed, of up to ten years.
func Duration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 || d > driver.MaxPause {
		return 0, &BadRequestError{fmt.Sprintf("%q is not a length of time of up to ten years: write 30m, 2h or 36h",
			text)}
	}
	return d, nil
}
