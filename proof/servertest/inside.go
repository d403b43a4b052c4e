package servertest

import (
	"math/rand/v2"
	"net"
)

// CutRequests cuts off, while it is on, each connection whose client sends something: the first
// part of that reaches the server, and nothing after it, in either direction, as with Strand.
func (p *Proxy) CutRequests(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inside = on
}

// cuts reports whether a chunk is the one in which its link is cut off.
func (p *Proxy) cuts(c chunk, reply bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inside && !reply && len(c.data) > 1
}

// firstPart is some of a request, or all but the last five bytes: those with which a pipeline of
// Postgres ends.
func firstPart(data []byte) []byte {
	if len(data) > 5 && rand.IntN(2) == 0 {
		return data[:len(data)-5]
	}
	return data[:1+rand.IntN(len(data)-1)]
}

// passFirstPart passes some of a request on, and nothing after it. It returns when the link is
// over.
func (p *Proxy) passFirstPart(l *link, conn net.Conn, request []byte) {
	p.write(l, conn, firstPart(request), false)
	p.flow.Lock()
	l.stranded = true
	p.flow.Unlock()
	p.pass(l, func() {})
}
