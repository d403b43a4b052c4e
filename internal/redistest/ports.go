package redistest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

const (
	// Every port handed out is below 32768. Systems give outgoing connections
	// a local port from there upwards, and such a connection would keep a
	// restarted server from binding its old port again.
	lowPort  = 10000
	highPort = 32000

	// busOffset is the distance from a cluster node's port to its bus port.
	busOffset = 10000
)

// taken holds the ports this process has handed out and not yet taken back: a
// killed server listens on nothing, and still needs its port for its restart.
var taken = struct {
	sync.Mutex
	ports map[int]bool
}{ports: map[int]bool{}}

// takePort reserves a free port, together with its cluster bus port if bus is
// set.
func takePort(bus bool) (int, error) {
	taken.Lock()
	defer taken.Unlock()
	low, high := lowPort+busOffset, highPort
	if bus {
		low, high = lowPort, highPort-busOffset
	}
	for range 200 {
		port := low + rand.IntN(high-low)
		want := []int{port}
		if bus {
			want = append(want, port+busOffset)
		}
		if allFree(want) {
			for _, p := range want {
				taken.ports[p] = true
			}
			return port, nil
		}
	}
	return 0, errors.New("redistest: no free port found")
}

func allFree(ports []int) bool {
	for _, p := range ports {
		if taken.ports[p] {
			return false
		}
		l, err := net.Listen("tcp", hostPort(p))
		if err != nil {
			return false
		}
		_ = l.Close()
	}
	return true
}

// givePort takes a port back.
func givePort(port int, bus bool) {
	taken.Lock()
	defer taken.Unlock()
	delete(taken.ports, port)
	if bus {
		delete(taken.ports, port+busOffset)
	}
}

func hostPort(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// listen opens a listener on a port of its own.
func listen() (net.Listener, int, error) {
	var last error
	for range 10 {
		port, err := takePort(false)
		if err != nil {
			return nil, 0, err
		}
		l, err := net.Listen("tcp", hostPort(port))
		if err == nil {
			return l, port, nil
		}
		givePort(port, false)
		last = err
	}
	return nil, 0, fmt.Errorf("redistest: listen: %w", last)
}
