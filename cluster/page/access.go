package page

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/tickslot/tickslot/dlock/driver"
)

// Access is what a user may do.
type Access struct {
	Read bool // look at the page
	Act  bool // change things; includes Read
	// Payloads: look at payloads and headers, too, in which there may be what only few may know.
	// Without it they are neither on the page nor in its JSON. Values of headers that are called as
	// secrets are (Authorization, Cookie, X-Api-Key) are hidden from everybody.
	Payloads bool
	// By is the name of the user, for the log, the events, and for showing who has paused a timer:
	// 1 to 256 bytes of text. Required to act.
	By string
	// Deny answers a user who may not read: it asks for a log-in (401), or redirects to yours.
	// Default: 403 and a page that says so.
	Deny http.Handler

	why error // a user is told who may not read, if Deny is nil; nil: errNoAccess
}

var (
	errClosed = errors.New("this page is closed to other machines: page.Loopback lets only that read on which it runs")
	errProxy  = errors.New("this page is closed: the request came through a proxy, and page.Loopback cannot say " +
		"whose it is: use page.ProxyHeader or page.BasicAuth")
	errNoAccess = errors.New("you may not read this page")
	errNoAct    = errors.New("you may read this page, but change nothing: Config.Authorize has to say so")
	errNoName   = errors.New("you may not change anything without a name: Config.Authorize has to fill in Access.By")

	errNoAuthorize = errors.New("there is no Authorize, and nobody reads the page unless you say who: write " +
		"Authorize: page.Loopback for the machine that it runs on, use page.BasicAuth or page.ProxyHeader, or write " +
		"a function")
)

// proxied are headers that proxies add.
var proxied = []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"}

// Loopback is an Authorize that lets requests from the same machine read, and change nothing. It
// refuses what came through a proxy, by the headers that proxies add (Forwarded, X-Forwarded-For,
// X-Forwarded-Host, X-Real-IP, Via): if a proxy on the same machine adds none of them,
// everybody who can reach the proxy can read the page.
func Loopback(r *http.Request) Access {
	for _, name := range proxied {
		if len(r.Header.Values(name)) > 0 {
			return Access{why: errProxy}
		}
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !peer.Addr().Unmap().IsLoopback() {
		return Access{why: errClosed}
	}
	if host, err := addressOf(hostname(r.Host)); err == nil && !host.IsLoopback() {
		return Access{why: errClosed}
	}
	return Access{Read: true}
}

// A User may log in to a page that has BasicAuth.
type User struct {
	Name     string // up to 256 bytes of text without a colon
	Password string
	Act      bool // may change things
	Payloads bool // may look at payloads and headers
}

// BasicAuth returns an Authorize that asks for one of these names with its password (HTTP Basic).
// Passwords need TLS: that of your server, or of a proxy. Wrong passwords are not counted: use long
// ones.
func BasicAuth(users ...User) (func(*http.Request) Access, error) {
	var errs []error
	known := map[string]User{}
	for i, u := range users {
		_, twice := known[u.Name]
		switch {
		case u.Name == "" || strings.Contains(u.Name, ":") || (driver.Cause{By: u.Name}).Validate() != nil:
			errs = append(errs, fmt.Errorf("user %d: the Name is empty, longer than 256 bytes, or has a colon or "+
				"control characters", i+1))
		case u.Password == "":
			errs = append(errs, fmt.Errorf("user %q has no Password: set one", u.Name))
		case twice:
			errs = append(errs, fmt.Errorf("user %q is there twice: leave one out", u.Name))
		}
		known[u.Name] = u
	}
	if len(users) == 0 {
		errs = append(errs, errors.New("there is no user: give one or more"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("page: BasicAuth: %w", err)
	}
	deny := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", `Basic realm="tickslot", charset="UTF-8"`)
		http.Error(w, "log in", http.StatusUnauthorized)
	})
	return func(r *http.Request) Access {
		name, password, _ := r.BasicAuth()
		u, there := known[name]
		// The sums are of one length, so how long it takes tells nothing about the password.
		want, got := sha256.Sum256([]byte(u.Password)), sha256.Sum256([]byte(password))
		if same := subtle.ConstantTimeCompare(want[:], got[:]) == 1; !there || !same {
			return Access{Deny: deny}
		}
		return Access{Read: true, Act: u.Act, By: u.Name, Payloads: u.Payloads}
	}, nil
}

// ProxyHeader returns an Authorize that believes the header in which a proxy names the user, if the
// request comes from a trusted network: "10.1.2.0/24", or the address of the proxy, "10.1.2.3".
// That user may read. Put a function of yours around it to let some act, or see payloads. The proxy
// has to replace the header, if the client has sent one; every program in the trusted networks can
// name any user.
func ProxyHeader(header string, trusted ...string) (func(*http.Request) Access, error) {
	var errs []error
	if header == "" || strings.ContainsAny(header, " :_\r\n") {
		errs = append(errs, fmt.Errorf("%q is not the name of a header: use one such as X-Forwarded-User", header))
	}
	if len(trusted) == 0 {
		errs = append(errs, errors.New("no network is trusted, so nobody could read: give that of the proxy, such as "+
			"10.1.2.0/24 or 127.0.0.1"))
	}
	var nets []netip.Prefix
	for _, text := range trusted {
		network, err := netip.ParsePrefix(text)
		if addr, wrong := netip.ParseAddr(text); wrong == nil {
			network, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%q is not a network: use one such as 10.1.2.0/24, or an address", text))
		}
		nets = append(nets, network)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("page: ProxyHeader: %w", err)
	}
	foreign := errors.New("this page is closed: the request did not come through a trusted proxy")
	unnamed := fmt.Errorf("this page is closed: the proxy did not name the user, once, in the header %s", header)
	return func(r *http.Request) Access {
		peer, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil || !slices.ContainsFunc(nets, func(n netip.Prefix) bool {
			return n.Contains(peer.Addr().Unmap().WithZone(""))
		}) {
			return Access{why: foreign}
		}
		// Two values are the client's and the proxy's, of a proxy that adds and does not replace.
		by := r.Header.Values(header)
		if len(by) != 1 || by[0] == "" || (driver.Cause{By: by[0]}).Validate() != nil {
			return Access{why: unnamed}
		}
		return Access{Read: true, By: by[0]}
	}, nil
}

// admit returns what the sender of a request may do, or why the request is refused.
func (p *Page) admit(r *http.Request) (Access, error) {
	if err := p.checkHost(r.Host); err != nil {
		return Access{}, err
	}
	access := p.config.Authorize(r)
	access.Read = access.Read || access.Act
	if !access.Read {
		return access, cmp.Or(access.why, errNoAccess)
	}
	return access, nil
}

// readerOf returns the reader for whom streams are counted: the name of the user or, without one,
// the peer's address. One machine may use a whole /64 network of IPv6 addresses, so that network
// counts as one reader.
func readerOf(r *http.Request, access Access) string {
	if access.By != "" {
		return "user " + access.By
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return "peer " + r.RemoteAddr
	}
	addr := peer.Addr().Unmap().WithZone("")
	if network, err := addr.Prefix(64); err == nil && addr.Is6() {
		return "peer " + network.String()
	}
	return "peer " + addr.String()
}

type payloadsKey struct{} // of the context of a request whose sender has Access.Payloads

// MayReadPayloads reports whether the viewer for whom a View is called may see payloads and
// headers. A View of yours that has any asks it.
func MayReadPayloads(ctx context.Context) bool {
	may, _ := ctx.Value(payloadsKey{}).(bool)
	return may
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
	if _, err := addressOf(name); err == nil {
		return nil
	}
	return fmt.Errorf("this page is not known as %q: if it should be, put that name into Config.Hosts", name)
}

// addressOf returns the address that stands in place of a name.
func addressOf(name string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(strings.Trim(name, "[]"))
	return addr.Unmap(), err
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
