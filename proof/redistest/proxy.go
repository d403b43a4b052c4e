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

// quiet is how long a client has to send nothing for its burst to be over. It
// is far above the time between two writes of one pipeline, and is what a
// counting proxy adds to each round trip.
const quiet = 3 * time.Millisecond

// setup are the commands that clients send of their own accord, when they
// connect or look for the right node. Bursts of nothing else are no round trips.
var setup = map[string]bool{
	"AUTH": true, "CLIENT": true, "CLUSTER": true, "COMMAND": true,
	"HELLO": true, "PING": true, "READONLY": true, "SELECT": true,
}

// CountingProxy is a proxy that also counts round trips and commands. Its
// methods are safe for concurrent use.
type CountingProxy struct {
	*servertest.Proxy

	mu       sync.Mutex
	trips    int64
	commands map[string]int
}

// NewCountingProxy starts a proxy that counts round trips and commands.
//
// To count a pipeline as one, however many writes it takes, the proxy collects
// what a client sends until a whole command has come in and nothing has
// followed it for 3 ms, and passes it on as one burst. Every round trip takes
// that much longer. The streams have to be plain RESP, not TLS.
func NewCountingProxy(target string) (*CountingProxy, error) {
	p := &CountingProxy{commands: map[string]int{}}
	var err error
	p.Proxy, err = servertest.NewProxyWith(p.burstReader, target)
	return p, err
}

// RoundTrips returns how many bursts clients have sent: a single command is
// one, and so is a pipeline or a transaction written in one go. Bursts that
// consist of connection setup alone (HELLO, CLIENT, AUTH, SELECT, READONLY,
// CLUSTER, COMMAND, PING) do not count.
func (c *CountingProxy) RoundTrips() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trips
}

// Commands returns how often clients have sent each command, by its name in
// upper case, connection setup included.
func (c *CountingProxy) Commands() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.commands)
}

// Reset sets the counts to zero. It leaves the faults as they are.
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
			// Wait without limit for a burst, and for the rest of a command:
			// clients flush full buffers in the middle of one.
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

// count counts a burst of the named commands.
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
