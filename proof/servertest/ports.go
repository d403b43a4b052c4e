package servertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Every reserved port is below 32768. Systems assign higher local ports to outgoing connections,
// and such a connection would keep a restarted server from binding its old port again.
const (
	lowPort  = 10000
	highPort = 32000
)

// taken has the ports that this process has reserved. A killed server does not listen, but needs
// its port for its restart.
var taken = struct {
	sync.Mutex
	ports map[int]bool
}{ports: map[int]bool{}}

// takePort reserves a free port and, unless second is 0, also the port that is second higher.
func takePort(second int) (int, error) {
	taken.Lock()
	defer taken.Unlock()
	for range 200 {
		port := lowPort + rand.IntN(highPort-lowPort-second)
		if free(port) && free(port+second) {
			taken.ports[port], taken.ports[port+second] = true, true
			return port, nil
		}
	}
	return 0, errors.New("no free port found")
}

// free reports whether a port is available. The caller holds taken's mutex.
func free(port int) bool {
	if taken.ports[port] {
		return false
	}
	l, err := net.Listen("tcp", hostPort(port))
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}

// givePort releases a port and its second port.
func givePort(port, second int) {
	taken.Lock()
	defer taken.Unlock()
	delete(taken.ports, port)
	delete(taken.ports, port+second)
}

func hostPort(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// listen opens a listener on a newly reserved port.
func listen() (net.Listener, int, error) {
	var last error
	for range 10 {
		port, err := takePort(0)
		if err != nil {
			return nil, 0, err
		}
		l, err := net.Listen("tcp", hostPort(port))
		if err == nil {
			return l, port, nil
		}
		givePort(port, 0)
		last = err
	}
	return nil, 0, fmt.Errorf("listen: %w", last)
}
