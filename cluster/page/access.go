package page

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Access is what a user may do.
type Access struct {
	Read bool // look at the page
	Act  bool // change things; includes Read
	// By is the name of the user, for the log, the events, and for showing who has paused a timer:
	// 1 to 256 bytes of text. Required to act.
	By string
}

var (
	errClosed = errors.New("this page is closed: without Config.Authorize only the machine that it runs on may read it")
	errProxy  = errors.New("this page is closed: the request came through a proxy, and there is no Config.Authorize " +
		"to say whose it is")
	errNoAccess = errors.New("you may not read this page")
	errNoAct    = errors.New("you may read this page, but change nothing: Config.Authorize has to say so")
	errNoName   = errors.New("you may not change anything without a name: Config.Authorize has to fill in Access.By")
)

// proxied are headers that proxies add.
var proxied = []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"}

// admit returns what the sender of a request may do, or why the request is refused.
func (p *Page) admit(r *http.Request) (Access, error) {
	if err := p.checkHost(r.Host); err != nil {
		return Access{}, err
	}
	if p.config.Authorize != nil {
		access := p.config.Authorize(r)
		if !access.Read && !access.Act {
			return Access{}, errNoAccess
		}
		access.Read = true
		return access, nil
	}
	for _, name := range proxied {
		if len(r.Header.Values(name)) > 0 {
			return Access{}, errProxy
		}
	}
	if peer, err := netip.ParseAddrPort(r.RemoteAddr); err != nil || !peer.Addr().Unmap().IsLoopback() {
		return Access{}, errClosed
	}
	return Access{Read: true}, nil
}

// checkHost refuses host names that are not ours. The name of another site may resolve to our
// address (DNS rebinding); to the browser our answers are then of that site, and its scripts may
// read them. An address in place of a name is safe, because no page of another site has that
// origin.
func (p *Page) checkHost(host string) error {
	name := hostname(host)
	if slices.Contains(p.config.Hosts, "*") || slices.Contains(p.config.Hosts, name) || name == "localhost" ||
		strings.HasSuffix(name, ".localhost") {
		return nil
	}
	if addr, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		if p.config.Authorize != nil || addr.Unmap().IsLoopback() {
			return nil
		}
		return errClosed
	}
	return fmt.Errorf("this page is not known as %q: if it should be, put that name into Config.Hosts", name)
}

// hostname returns the name of a Host header without its port.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// setHeaders keeps other sites from showing, reading or guessing anything. Nothing on our pages is
// inline. The referrer stays within the site, because without one browsers send no Origin either.
func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "+
		"img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}
