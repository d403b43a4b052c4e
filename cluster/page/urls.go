package page

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tickslot/tickslot/cluster/page/internal/pagekit"
)

// URL returns that of a page with values, in pairs of name and value: URL("timer", "name", "a").
// Those that are "" are left out. Put names and text that users have typed only into such values,
// where they are escaped.
func URL(page string, pairs ...string) string {
	v := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			v.Set(pairs[i], pairs[i+1])
		}
	}
	if page == "" {
		page = "."
	}
	if len(v) == 0 {
		return page
	}
	return page + "?" + v.Encode()
}

// rowsPerPage is how many rows of a list are on one page.
const rowsPerPage = 100

// A pager says which part of a list is shown.
type pager struct {
	Total    int    `json:"total"` // that match
	From     int    `json:"from"`  // the first that is shown; 0: there is none
	Until    int    `json:"until"` // the last
	Previous string `json:"previous,omitempty"`
	Next     string `json:"next,omitempty"` // URL
}

// pageOf returns the part of a list that the URL asks for.
func pageOf[T any](page string, q url.Values, list []T) ([]T, pager) {
	n, err := strconv.Atoi(q.Get("page"))
	last := max(0, (len(list)-1)/rowsPerPage)
	if err != nil || n < 0 {
		n = 0
	}
	n = min(n, last)
	from, until := n*rowsPerPage, min(len(list), (n+1)*rowsPerPage)
	p := pager{Total: len(list), From: min(from+1, len(list)), Until: until}
	to := func(n int) string {
		v := url.Values{}
		for name := range q {
			v.Set(name, q.Get(name))
		}
		v.Set("page", strconv.Itoa(n))
		return page + "?" + v.Encode()
	}
	if n > 0 {
		p.Previous = to(n - 1)
	}
	if n < last {
		p.Next = to(n + 1)
	}
	if list == nil {
		return []T{}, p
	}
	return list[from:until], p
}

// matches reports whether any of the texts contains the search text, ignoring case.
func matches(q url.Values, texts ...string) bool {
	search := strings.ToLower(strings.TrimSpace(q.Get("q")))
	return search == "" || slices.ContainsFunc(texts, func(text string) bool {
		return strings.Contains(strings.ToLower(text), search)
	})
}

// A filter is what a list was filtered by.
type filter struct {
	Search string           `json:"search,omitempty"`
	State  string           `json:"state,omitempty"`
	Host   string           `json:"host,omitempty"`
	States []pagekit.Option `json:"-"` // that can be chosen

	StateLabel string `json:"-"` // what they are; "": states
}

func filterOf(q url.Values, states ...string) filter {
	f := filter{Search: q.Get("q"), State: q.Get("state"), Host: q.Get("host")}
	for _, s := range states {
		f.States = append(f.States, pagekit.Option{Value: s, Chosen: s == f.State})
	}
	return f
}
