package servertest

import (
	"math/rand/v2"
	"net"
)

// CutRequests with true cuts off each connection whose client sends something. The first part of it
// reaches the server, and nothing afterwards in either direction, as with Strand.
func (p *Proxy) CutRequests(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inside = on
}

// cuts reports whether to cut off the link within this chunk.
func (p *Proxy) cuts(c chunk, reply bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inside && !reply && len(c.data) > 1
}

// firstPart returns part of a request: all but the last five bytes, which end a Postgres pipeline.
func firstPart(data []byte) []byte {
	if len(data) > 5 && rand.IntN(2) == 0 {
		return data[:len(data)-5]
	}
	return data[:1+rand.IntN(len(data)-1)]
}

// passFirstPart forwards part of a request, and nothing afterwards. It returns when the link has
// ended.
func (p *Proxy) passFirstPart(l *link, conn net.Conn, request []byte) {
	p.write(l, conn, firstPart(request), false)
	p.flow.Lock()
	l.stranded = true
	p.flow.Unlock()
	p.pass(l, func() {})
}
