package health

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/tickslot/tickslot/internal/mask"
)

// ServeHTTP answers a probe.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	probe, name, one := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	checks, ok := h.probes[probe]
	switch {
	case !ok:
		refuse(w, r, http.StatusNotFound, "there are /livez, /readyz and /startupz")
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		header.Set("Allow", "GET, HEAD")
		refuse(w, r, http.StatusMethodNotAllowed, "a probe is a GET or a HEAD")
		return
	}
	query := r.URL.Query()
	a := answer{details: h.Details == nil || h.Details(r)}
	if one {
		if checks = named(checks, name); len(checks) == 0 {
			refuse(w, r, http.StatusNotFound, fmt.Sprintf("/%s has no check %q: /%s?verbose lists them", probe, name,
				probe))
			return
		}
		a.verdicts = run(checks)
		for i := range a.verdicts {
			a.verdicts[i].required = true // the request is only about this check
		}
	} else {
		checks = a.exclude(checks, query["exclude"])
		a.verdicts = run(checks)
	}

	status, state := http.StatusOK, a.state()
	if state == stateUnhealthy {
		status = http.StatusServiceUnavailable
	}
	header.Set("X-Health", state.String())
	header.Set("Vary", "Accept")
	if wantsJSON(r.Header["Accept"]) {
		send(w, r, status, jsonType, a.json())
	} else {
		send(w, r, status, textType+"; charset=utf-8", a.text(query.Has("verbose")))
	}
}

func refuse(w http.ResponseWriter, r *http.Request, status int, why string) {
	send(w, r, status, textType+"; charset=utf-8", []byte(why+"\n"))
}

func send(w http.ResponseWriter, r *http.Request, status int, typ string, body []byte) {
	w.Header().Set("Content-Type", typ)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may be gone
	}
}

func named(checks []*check, name string) (found []*check) {
	for _, c := range checks {
		if c.name == name {
			found = append(found, c)
		}
	}
	return found
}

// An answer is the result of a probe.
type answer struct {
	verdicts []verdict
	excluded []string // the checks that were not called
	unknown  []string // the ?exclude= names that match no check
	details  bool
}

// exclude returns the checks that are not in names. It records the excluded checks and the unknown
// names.
func (a *answer) exclude(checks []*check, names []string) (left []*check) {
	for _, c := range checks {
		if slices.Contains(names, c.name) {
			a.excluded = append(a.excluded, c.name)
		} else {
			left = append(left, c)
		}
	}
	for _, name := range names {
		if !slices.Contains(a.excluded, name) && !slices.Contains(a.unknown, name) {
			a.unknown = append(a.unknown, name)
		}
	}
	return left
}

// A state is the health of a host or of one check.
type state int

const (
	stateOK state = iota
	stateDegraded
	stateUnhealthy
)

func (s state) String() string { return [...]string{"ok", "degraded", "unhealthy"}[s] }

// draft returns the state as draft-inadarei-api-health-check spells it.
func (s state) draft() string { return [...]string{"pass", "warn", "fail"}[s] }

func (v verdict) state() state {
	switch {
	case !v.failed:
		return stateOK
	case v.required:
		return stateUnhealthy
	default:
		return stateDegraded
	}
}

func (a *answer) state() (worst state) {
	for _, v := range a.verdicts {
		worst = max(worst, v.state())
	}
	return worst
}

// text returns the body in the format that Kubernetes uses: ok or unhealthy, then a line per check.
// Unless verbose is set, it lists only the checks that made the host unhealthy.
func (a *answer) text(verbose bool) []byte {
	var b strings.Builder
	if a.state() == stateUnhealthy {
		b.WriteString("unhealthy\n")
	} else {
		b.WriteString("ok\n")
	}
	for _, v := range a.verdicts {
		switch {
		case v.failed && (verbose || v.required):
			fmt.Fprintf(&b, "[-]%s failed", oneLine(v.name))
			if a.details {
				b.WriteString(": " + oneLine(mask.Text(v.text)))
			}
			b.WriteByte('\n')
		case verbose && !v.failed:
			fmt.Fprintf(&b, "[+]%s ok\n", oneLine(v.name))
		}
	}
	if verbose {
		for _, name := range a.excluded {
			fmt.Fprintf(&b, "[+]%s excluded: ok\n", oneLine(name))
		}
		if warning := a.warning(); warning != "" {
			b.WriteString(warning + "\n")
		}
	}
	return []byte(b.String())
}

func (a *answer) warning() string {
	if len(a.unknown) == 0 {
		return ""
	}
	quoted := make([]string, len(a.unknown))
	for i, name := range a.unknown {
		quoted[i] = strconv.Quote(name)
	}
	return "warn: some health checks cannot be excluded: no matches for " + strings.Join(quoted, ",")
}

func (a *answer) json() []byte {
	type found struct {
		Status string `json:"status"`
		Output string `json:"output,omitempty"`
	}
	doc := struct {
		Status string             `json:"status"`
		Notes  []string           `json:"notes,omitempty"`
		Checks map[string][]found `json:"checks"`
	}{Status: a.state().draft(), Checks: map[string][]found{}}
	if warning := a.warning(); warning != "" {
		doc.Notes = []string{warning}
	}
	for _, v := range a.verdicts {
		f := found{Status: v.state().draft()}
		if v.failed && a.details {
			f.Output = mask.Text(v.text)
		}
		doc.Checks[v.name] = append(doc.Checks[v.name], f)
	}
	body, err := json.Marshal(doc)
	if err != nil {
		panic(err) // unreachable: the value contains only strings
	}
	return append(body, '\n')
}

// oneLine replaces line breaks and control characters. With a line break, one error could look like
// several checks.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			return ' '
		}
		return r
	}, strings.ReplaceAll(s, "\n", "; "))
}
