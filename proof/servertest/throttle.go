package servertest

import "time"

// Throttle has each connection carry so many bytes of the server's answers in a second; 0: as many
// as it can.
func (p *Proxy) Throttle(bytesPerSecond int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rate = bytesPerSecond
}

// throttled is how long a link is busy with n bytes.
func (p *Proxy) throttled(n int, reply bool) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !reply || p.rate == 0 {
		return 0
	}
	return time.Duration(n) * time.Second / time.Duration(p.rate)
}
