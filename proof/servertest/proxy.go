package servertest

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
)

// A Proxy is a TCP proxy that can simulate network faults. Its methods are safe for concurrent use.
type Proxy struct {
	target string
	port   int
	reader Reader
	pumps  sync.WaitGroup

	// flow is held for reading while bytes are forwarded, so that changes made under it apply from
	// the next byte on.
	flow sync.RWMutex
	open chan struct{} // closed while bytes may pass

	mu       sync.Mutex // locked after flow
	drop     int        // number of reply chunks to drop
	mute     bool       // replies are lost
	inside   bool       // requests are cut off in the middle
	listener net.Listener
	links    map[*link]struct{}
	delay    time.Duration
	jitter   time.Duration
	replies  time.Duration // additional delay of replies
	rate     int           // bytes of replies per second; 0: unlimited
	cut      bool
	closed   bool
}

// A Reader returns, for a new client connection, the function that reads from it. The proxy
// forwards the result of each call as one unit.
type Reader func(client net.Conn) func() ([]byte, error)

// NewProxy starts a proxy in front of target, a host:port. It adds no latency.
func NewProxy(target string) (*Proxy, error) { return NewProxyWith(reader, target) }

// NewProxyWith is NewProxy for a proxy that inspects the data from clients.
func NewProxyWith(reader Reader, target string) (*Proxy, error) {
	l, port, err := listen()
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		target:   target,
		port:     port,
		reader:   reader,
		open:     make(chan struct{}),
		listener: l,
		links:    map[*link]struct{}{},
	}
	close(p.open)
	p.pumps.Go(func() { p.accept(l) })
	return p, nil
}

// Addr returns the host:port to connect to. Cut and Mend do not change it.
func (p *Proxy) Addr() string { return hostPort(p.port) }

// BlackHole with true makes the network drop everything silently: connections stay up and new ones
// are accepted, but nothing passes in either direction, not even the end of a connection.
// BlackHole(false) delivers everything that was held back.
func (p *Proxy) BlackHole(on bool) {
	p.flow.Lock()
	defer p.flow.Unlock()
	switch {
	case on && p.isOpen():
		p.open = make(chan struct{})
	case !on && !p.isOpen():
		close(p.open)
	}
}

// Strand makes the current connections to the server permanently silent in both directions without
// closing them, like a firewall that lost its table, or a host that got another address. New
// connections work, and so do connections that a BlackHole kept from reaching the server.
func (p *Proxy) Strand() {
	p.flow.Lock()
	defer p.flow.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.mu.Lock()
		l.stranded = l.server != nil
		l.mu.Unlock()
	}
}

// isOpen reports whether bytes may pass. The caller holds p.flow.
func (p *Proxy) isOpen() bool {
	select {
	case <-p.open:
		return true
	default:
		return false
	}
}

// DropReplies drops the next n chunks from the server, on any connection, so the server has
// executed a command and the client does not learn of it. A short reply is one chunk. So is the
// reply to a new connection's handshake: warm up the connection first.
func (p *Proxy) DropReplies(n int) {
	p.flow.Lock()
	defer p.flow.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop = n
}

// LoseReplies with true forwards requests and drops replies. The reply to a request that was
// forwarded meanwhile is dropped whenever it arrives. A connection that has lost a reply stays
// silent forever, because a stream cannot continue after a gap. After LoseReplies(false), other
// connections and new ones work.
func (p *Proxy) LoseReplies(on bool) {
	p.flow.Lock()
	defer p.flow.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute = on
}

// Delay delays each chunk by d in each direction, which adds 2d to a round trip.
func (p *Proxy) Delay(d time.Duration) { p.DelayUpTo(d, d) }

// DelayUpTo is Delay with a random time between least and most for each chunk. Chunks stay in
// order.
func (p *Proxy) DelayUpTo(least, most time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay, p.jitter = least, max(0, most-least)
}

// DelayReplies delays only the server's answers by d, so a request is executed long before the
// client learns of it.
func (p *Proxy) DelayReplies(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replies = d
}

// Reset resets all connections (RST). New ones are accepted.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resetLinks()
}

// Cut resets all connections (RST), and refuses new ones until Mend.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut || p.closed {
		return
	}
	p.cut = true
	_ = p.listener.Close()
	p.resetLinks()
}

// resetLinks resets all connections. The caller holds p.mu.
func (p *Proxy) resetLinks() {
	for l := range p.links {
		l.reset()
	}
	clear(p.links)
}

// Mend ends a Cut. It fails only if another process has taken the port.
func (p *Proxy) Mend() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.cut || p.closed {
		return nil
	}
	err := testkit.Poll(limit, "repair", func(context.Context) error {
		l, err := net.Listen("tcp", p.Addr())
		if err == nil {
			p.listener = l
		}
		return err
	})
	if err != nil {
		return err
	}
	p.cut = false
	l := p.listener
	p.pumps.Go(func() { p.accept(l) })
	return nil
}

// Close ends the proxy and its connections. It may be called repeatedly.
func (p *Proxy) Close() {
	p.mu.Lock()
	first := !p.closed
	p.closed = true
	_ = p.listener.Close()
	p.resetLinks()
	p.mu.Unlock()
	p.pumps.Wait()
	if first {
		givePort(p.port, 0)
	}
}

func (p *Proxy) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		l := newLink(conn)
		p.mu.Lock()
		if p.cut || p.closed {
			l.reset()
		} else {
			p.links[l] = struct{}{}
			p.pumps.Go(func() { p.serve(l) })
		}
		p.mu.Unlock()
	}
}

// A link is a client's connection and its connection to the server.
type link struct {
	client net.Conn
	ctx    context.Context // ends with the link
	cancel context.CancelFunc

	replyLost bool // a reply to the client is or will be lost; guarded by Proxy.mu
	stranded  bool // nothing passes any more; guarded by flow

	mu     sync.Mutex
	server net.Conn // nil before it is dialed
	over   bool
}

func newLink(client net.Conn) *link {
	l := &link{client: client}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// attach sets the connection to the server, unless the link has ended.
func (l *link) attach(server net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		_ = server.Close()
		return false
	}
	l.server = server
	return true
}

// reset ends both connections with an RST; close ends them cleanly.
func (l *link) reset() { l.end(true) }
func (l *link) close() { l.end(false) }

func (l *link) end(rst bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return
	}
	l.over = true
	l.cancel()
	for _, c := range []net.Conn{l.client, l.server} {
		if c == nil {
			continue
		}
		if tcp, ok := c.(*net.TCPConn); ok && rst {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
}

// A chunk is the result of one read, on its way through the proxy.
type chunk struct {
	data []byte
	due  time.Time // when it may be forwarded
	err  error     // why no chunk follows
}

// backlog is the maximum number of chunks in flight per direction. Beyond it, data stays in the
// system's buffers.
const backlog = 1024

// serve forwards bytes in both directions until both have ended.
func (p *Proxy) serve(l *link) {
	defer func() {
		l.close()
		p.mu.Lock()
		delete(p.links, l)
		p.mu.Unlock()
	}()
	// In a black hole, the client must not learn that the server is down.
	if !p.pass(l, func() {}) {
		return
	}
	conn, err := (&net.Dialer{Timeout: limit}).DialContext(l.ctx, "tcp", p.target)
	if err != nil {
		// Skipped if the black hole began during the dial.
		p.pass(l, l.reset)
		return
	}
	if !l.attach(conn) {
		return
	}
	requests, replies := make(chan chunk, backlog), make(chan chunk, backlog)
	var both sync.WaitGroup
	both.Go(func() { p.receive(l, p.reader(l.client), requests, false) })
	both.Go(func() { p.receive(l, reader(conn), replies, true) })
	both.Go(func() { p.send(l, requests, conn, false) })
	both.Go(func() { p.send(l, replies, l.client, true) })
	both.Wait()
}

// pass calls do at a moment when bytes may pass. It returns false if the link ended first.
func (p *Proxy) pass(l *link, do func()) bool {
	for {
		p.flow.RLock()
		open := p.open
		switch {
		case l.stranded:
			open = nil // blocks forever
		case p.isOpen():
			defer p.flow.RUnlock()
			do()
			return true
		}
		p.flow.RUnlock()
		select {
		case <-open:
		case <-l.ctx.Done():
			return false
		}
	}
}

// receive queues the results of read, including its error.
func (p *Proxy) receive(l *link, read func() ([]byte, error), queue chan<- chunk, replies bool) {
	for {
		data, err := read()
		p.mu.Lock()
		delay := p.delay
		if p.jitter > 0 {
			delay += rand.N(p.jitter)
		}
		if replies {
			delay += p.replies
		}
		c := chunk{data: data, due: time.Now().Add(delay), err: err}
		p.mu.Unlock()
		select {
		case queue <- c:
		case <-l.ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// reader is a Reader that forwards data as it arrives.
func reader(conn net.Conn) func() ([]byte, error) {
	buf := make([]byte, 64<<10)
	return func() ([]byte, error) {
		n, err := conn.Read(buf)
		return append([]byte(nil), buf[:n]...), err
	}
}

// send writes the queue to conn.
func (p *Proxy) send(l *link, queue <-chan chunk, conn net.Conn, replies bool) {
	for {
		var c chunk
		select {
		case c = <-queue:
		case <-l.ctx.Done():
			return
		}
		if !p.wait(l, c.due) {
			return
		}
		if p.cuts(c, replies) {
			p.passFirstPart(l, conn, c.data)
			return
		}
		if !p.write(l, conn, c.data, replies) || !p.wait(l, time.Now().Add(p.throttled(len(c.data), replies))) {
			return
		}
		if c.err != nil {
			p.pass(l, func() { finish(l, conn, c.err) })
			return
		}
	}
}

// wait waits until due, and returns false if the link ended first.
func (p *Proxy) wait(l *link, due time.Time) bool {
	left := time.Until(due)
	if left <= 0 {
		return true
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.ctx.Done():
		return false
	}
}

// write writes data to conn, unless it is a reply to be dropped.
func (p *Proxy) write(l *link, conn net.Conn, data []byte, reply bool) bool {
	if len(data) == 0 {
		return true
	}
	started := false
	var err error
	for len(data) > 0 && err == nil {
		ok := p.pass(l, func() {
			switch {
			case started:
			case !reply:
				p.losesReply(l)
			case p.swallow(l):
				data = nil
				return
			}
			started = true
			// The peer may not read for a long time, and BlackHole waits for this call, so the call
			// must return regularly.
			_ = conn.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
			var n int
			n, err = conn.Write(data)
			data = data[n:]
			if errors.Is(err, os.ErrDeadlineExceeded) {
				err = nil
			}
		})
		if !ok {
			return false
		}
	}
	if err != nil {
		l.reset()
		return false
	}
	return true
}

// losesReply is called before a request is forwarded. If replies are dropped now, its reply is
// dropped too, even if it arrives after LoseReplies(false).
func (p *Proxy) losesReply(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.replyLost = l.replyLost || p.mute
}

// swallow reports whether to drop the next reply.
func (p *Proxy) swallow(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.replyLost = l.replyLost || p.mute; l.replyLost {
		return true
	}
	if p.drop == 0 {
		return false
	}
	p.drop--
	return true
}

// finish ends one direction in the same way as its sender.
func finish(l *link, conn net.Conn, err error) {
	if tcp, ok := conn.(*net.TCPConn); ok && errors.Is(err, io.EOF) {
		_ = tcp.CloseWrite()
		return
	}
	l.reset()
}
