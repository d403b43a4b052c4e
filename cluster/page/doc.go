// Package page is the operator's page of a fleet. It shows what runs where, who holds what, and why
// something does not run, and lets operators stop or start it. It is an http.Handler for any mux
// and prefix:
//
//	page, err := page.New(page.Config{Registry: registry, Timers: timers, Authorize: page.Loopback})
//	...
//	mux.Handle("/ops/", page)             // with the slash at the end
//	server.RegisterOnShutdown(page.Close) // or Shutdown waits for viewers
//
// Each page is HTML that works without JavaScript; with it, the page updates itself. The same URL
// answers with JSON if the request says Accept: application/json, and with a stream of pages if it
// says text/event-stream. The URL openapi.json has the description. Filters are in the URL, so a
// link shows to others what you see.
//
// # Who may read, and who may act
//
// It is closed unless you say who may read: New refuses a Config without Authorize, which says for
// each request who sends it, and what that user may do. Loopback lets the same machine look;
// BasicAuth asks for a name and a password, ProxyHeader believes a header of your proxy; or write a
// function:
//
//	Authorize: func(r *http.Request) page.Access {
//		user, ok := userOf(r) // your sessions
//		return page.Access{Read: ok, Act: user.Operator, By: user.Name,
//			Deny: http.RedirectHandler("/login", http.StatusSeeOther)}
//	},
//	Hosts: []string{"ops.example.com"}, // the names in the browser's address bar
//
// A request under a name that is not in Config.Hosts is refused: otherwise a page of another site,
// whose name resolves to your address, could read yours (DNS rebinding). Requests that change
// something are refused if they come from another site (http.CrossOriginProtection). Each change
// asks for confirmation and says what it does. It is in the log and in the registry's events, with
// the name of the user who made it.
//
// Names of timers, errors and notes are only text, whatever is in them: invisible characters, and
// those that change the writing direction, are shown as escapes.
//
// The Content-Security-Policy of each answer allows the page's own script and style, and nobody may
// frame the page.
//
// # What it costs
//
// All viewers share the result of a read: a page makes at most five calls to the stores of locks
// and registry per second, for any number of viewers, and further ones if the leases have several
// pages. Sections say what theirs cost. Nothing runs while there are no viewers.
//
// # When a store does not answer
//
// No page waits for reads for longer than 300 ms: it shows what was read last, says as of when, and
// reads it anew behind that. Each page says first which store is silent, since when, how many
// timers run without it, and by how much they may exceed their limits. That is not promised for
// Views of your own Sections: they wait for what they read themselves.
//
// # What is not promised
//
// The page is a view, as old as it says: see package cluster. It shows errors of your handlers to
// everybody who may read it, without what looks like a secret. It shows payloads and headers to
// users with Access.Payloads, and cannot tell what is secret in a payload. With Loopback, if a
// proxy on the same machine adds none of the usual headers, everybody who can reach the proxy can
// read the page. The name of the user who makes a change is what Authorize returns in By; nothing
// else checks it.
//
// Schedules, next ticks, and why ticks were skipped are those that Config.Timers knows, which is
// the scheduler of the process that shows the page. Other hosts may have skipped for other reasons.
package page
