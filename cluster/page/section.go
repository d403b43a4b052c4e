package page

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/url"

	"github.com/tickslot/tickslot/cluster/page/internal/readcache"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/timer"
	"github.com/tickslot/tickslot/timer/control"
)

// ErrNotFound is what a View or an Action returns if there is nothing of that name.
var ErrNotFound = errors.New("there is nothing here")

// A Section is a group of pages. Packages durablepage and outboxpage have one each, and you may
// make your own: the page checks who may read and act, asks for confirmation of a change, and logs
// it.
type Section struct {
	// Links are in the navigation, in this order.
	Links []Link
	// Views are the pages, by the last part of their URL.
	Views map[string]View
	// Templates has a file <name>.html of html/template for each View. It is executed with a Frame.
	// It may show names, errors and other text as they are: the page escapes them.
	Templates fs.FS
	// Actions are what can be changed, by their names. A page links to one with
	// confirm?action=<name>, and the values that the action needs.
	Actions map[string]Action
	// Attention returns what the overview shows under "needs attention"; nil: nothing. It is asked
	// for each page, by one goroutine at a time, and no page waits for it for long.
	Attention func(ctx context.Context) []Notice
}

// A Link is a page in the navigation.
type Link struct {
	Title string
	Name  string // of the View
}

// A View loads what a page shows. q are the values of the URL, which must not be trusted. It is
// called for each viewer, so expensive reads should be shared. It must show payloads
// only if MayReadPayloads returns true.
type View func(ctx context.Context, q url.Values) (Content, error)

// Content is what a page shows.
type Content struct {
	Title string
	Data  any // for the template, and as JSON
}

// A Notice says what needs attention.
type Notice struct {
	Urgent bool   `json:"urgent"` // else it is good to know
	Text   string `json:"text"`
	// URL is that of a page which shows more, such as "timer?name=report"; "": there is none.
	URL string `json:"url,omitempty"`

	card bool // one stands for it on the overview
}

// An Action changes something.
type Action struct {
	// Title says what it does, to what: "Pause report". v are the values of the URL.
	Title func(v url.Values) string
	// Description says in a sentence or two what follows from it.
	Description string
	// Destructive: it deletes or ends something, so the page warns before it.
	Destructive bool
	// TypeName is the value of the URL, such as topic, that a user types before it is done: of what
	// concerns everything of that name and cannot be taken back. Programs, which ask for JSON, do
	// not. Default "": nothing has to be typed.
	TypeName string
	// Fields are what the page asks for, beside a note for the log, which it always asks for.
	Fields []Field
	// Many is the value of the URL of which there may be several, such as name: it is done to each,
	// one after the other, and logged for each. "": what it is about is not chosen from a list.
	// Title and Back have all of them, or none.
	Many string
	// Back is the page that is shown afterwards: "timer?name=report".
	Back func(v url.Values) string
	// Do does it, and returns what was done, for people who read the log: "paused until 12:00 UTC".
	// v also has the values of the Fields.
	Do func(ctx context.Context, v url.Values, by driver.Cause) (done string, err error)
	// Known reports whether what it is about exists, as far as is known; if not, the page asks
	// back. It is true if a store does not answer: then Do says so. Default: it exists.
	Known func(ctx context.Context, v url.Values) bool
	// Inverse returns the values of an action that takes this one back, with its name as action and
	// the values of its fields: the page that says what was done offers it as Undo. It is called
	// before Do. Nil, or a nil result: it cannot be taken back.
	Inverse func(ctx context.Context, v url.Values) url.Values
	// About returns the name of the lock that the event in the registry is about; nil, or "": it is
	// about none.
	About func(v url.Values) string
}

// A Field is something that an Action asks for.
type Field struct {
	Name      string
	Label     string
	Help      string
	Value     string // the initial one
	Required  bool
	Number    bool
	Multiline bool
	Presets   []Preset // that the field offers; none if it is Multiline
}

// A Preset is a value that a Field offers.
type Preset struct{ Value, Label string }

// A BadRequestError says what is wrong with what a user has typed.
type BadRequestError struct{ Text string }

func (b *BadRequestError) Error() string { return b.Text }

// statusOf returns the HTTP status for an error of a View or an Action.
func statusOf(err error) int {
	if errors.Is(err, ErrNotFound) {
		return http.StatusNotFound
	}
	if _, ok := errors.AsType[*BadRequestError](err); ok {
		return http.StatusBadRequest
	}
	if errors.Is(err, errForeign) {
		return http.StatusForbidden
	}
	if errors.Is(err, timer.ErrPayloadTooLong) {
		return http.StatusBadRequest
	}
	if errors.Is(err, control.ErrNoRun) || errors.Is(err, control.ErrTooManyTriggers) {
		return http.StatusConflict
	}
	if errors.Is(err, readcache.ErrNoAnswer) {
		return http.StatusServiceUnavailable
	}
	return http.StatusBadGateway // a store did not answer, or refused
}
