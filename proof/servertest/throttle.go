package servertest

import "time"

// Throttle limits the server's answers on each connection to this many bytes per second. 0 means no
// limit.
func (p *Proxy) Throttle(bytesPerSecond int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rate = bytesPerSecond
}

// throttled returns how long a link takes to carry n bytes.
func (p *Proxy) throttled(n int, reply bool) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !reply || p.rate == 0 {
		return 0
	}
	return time.Duration(n) * time.Second / time.Duration(p.rate)
}
