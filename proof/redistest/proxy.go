package redistest

import (
	"errors"
	"maps"
	"net"
	"os"
	"sync"
	"time"

	"github.com/tickslot/tickslot/proof/servertest"
)

// quiet is how long a client must send nothing before its burst is over. It is far above the time
// between two writes of one pipeline. A counting proxy adds it to each round trip.
const quiet = 3 * time.Millisecond

// setup lists the commands that clients send on their own when they connect or look for the right
// node. A burst of only these is not a round trip.
var setup = map[string]bool{
	"AUTH": true, "CLIENT": true, "CLUSTER": true, "COMMAND": true,
	"HELLO": true, "PING": true, "READONLY": true, "SELECT": true,
}

// A CountingProxy is a proxy that also counts round trips and commands. Its methods are safe for
// concurrent use.
type CountingProxy struct {
	*servertest.Proxy

	mu       sync.Mutex
	trips    int64
	commands map[string]int
}

// NewCountingProxy starts a proxy that counts round trips and commands.
//
// To count a pipeline as one round trip, the proxy buffers a client's data until a whole command
// has arrived and nothing has followed for 3 ms, then forwards it as one burst. Every round trip
// takes that much longer. Streams must be plain RESP, not TLS.
func NewCountingProxy(target string) (*CountingProxy, error) {
	p := &CountingProxy{commands: map[string]int{}}
	var err error
	p.Proxy, err = servertest.NewProxyWith(p.burstReader, target)
	return p, err
}

// RoundTrips returns how many bursts clients have sent. A single command is one, and so is a
// pipeline or a transaction written in one go. Bursts with only connection setup (HELLO, CLIENT,
// AUTH, SELECT, READONLY, CLUSTER, COMMAND, PING) do not count.
func (c *CountingProxy) RoundTrips() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trips
}

// Commands returns how often clients have sent each command, by its name in upper case, including
// connection setup.
func (c *CountingProxy) Commands() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.commands)
}

// Reset sets the counts to zero. It does not change the faults.
func (c *CountingProxy) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trips = 0
	clear(c.commands)
}

// burstReader returns a function that reads and counts the next burst.
func (c *CountingProxy) burstReader(conn net.Conn) func() ([]byte, error) {
	buf := make([]byte, 64<<10)
	var parser commandParser
	return func() ([]byte, error) {
		var burst []byte
		var names []string
		defer func() { c.count(names) }()
		for {
			// Wait without limit for a burst, and for the rest of a command, because clients flush
			// full buffers in the middle of one.
			until := time.Time{}
			if len(burst) > 0 && parser.between() {
				until = time.Now().Add(quiet)
			}
			if err := conn.SetReadDeadline(until); err != nil {
				return burst, err
			}
			n, err := conn.Read(buf)
			burst = append(burst, buf[:n]...)
			names = append(names, parser.feed(buf[:n])...)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return burst, nil
			}
			if err != nil {
				return burst, err
			}
		}
	}
}

// count counts a burst with the named commands.
func (c *CountingProxy) count(names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	trip := false
	for _, name := range names {
		c.commands[name]++
		trip = trip || !setup[name]
	}
	if trip {
		c.trips++
	}
}
