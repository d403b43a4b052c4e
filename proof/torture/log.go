package torture

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// A Line is one entry of a log. Every process has its own log and appends each line with one write,
// so the log survives kill -9. Instants are nanoseconds of CLOCK_MONOTONIC, which all processes of
// a machine share.
type Line struct {
	Kind string `json:"k"`
	Host string `json:"host"` // one life of a process
	At   int64  `json:"at"`

	// Begin, and Born for the limits.
	Timers []TimerLine `json:"timers,omitempty"`
	// Born: the leaders' roles. Only the name and the limit matter.
	Roles []TimerLine `json:"roles,omitempty"`

	// Seen: a run or a leader was valid according to its own checks at First, at Last, and in
	// between. Degraded: the same for a degraded run.
	Timer string `json:"timer,omitempty"`
	Slot  int    `json:"slot,omitempty"`
	Fence int64  `json:"fence,omitempty"`
	Tick  int64  `json:"tick,omitempty"` // µs, by the host's wall clock
	Run   int64  `json:"run,omitempty"`  // number of the run in its process
	First int64  `json:"first,omitempty"`
	Last  int64  `json:"last,omitempty"`
	Lost  bool   `json:"lost,omitempty"` // its context had ended with dlock.ErrLost before First

	// Status and End: the scheduler's report, by timer in the order of Begin.
	Ticks []uint64 `json:"ticks,omitempty"`
	Done  []uint64 `json:"done,omitempty"` // ticks that started a run or were skipped with a reason

	// Jump, and Fault for Stepped: how far the wall clock was moved.
	By int64 `json:"by,omitempty"`

	// End: what remained after a host was shut down.
	Leaked int    `json:"leaked,omitempty"`
	Stuck  string `json:"stuck,omitempty"`

	// Fault, RegistryBroken: the fault and its target, from First to Last. RegistryFails: the
	// reason.
	Fault  string `json:"fault,omitempty"`
	Target string `json:"target,omitempty"`

	Op *Op `json:"op,omitempty"`

	// For durable runs. Looked: the number of running runs by handler, unless there was no answer.
	Work    *Work          `json:"work,omitempty"`
	Running map[string]int `json:"running,omitempty"`
	Failed  bool           `json:"failed,omitempty"`

	// For an outbox.
	Message *Message `json:"message,omitempty"`
}

// These are the kinds of lines.
const (
	Begin    = "begin"    // a host is about to run its timers
	Seen     = "seen"     // a run was valid
	Degraded = "degraded" // a run continued without the store
	LeaseEnd = "lost"     // a run's context ended with dlock.ErrLost
	// A run was neither valid nor degraded for more than a second awake, and its context had not
	// ended.
	Untold = "untold"
	Status = "status" // several times a second
	Jump   = "jump"
	Drain  = "drain" // a host is shutting down: no more ticks come due
	End    = "end"   // a host has stopped, cleanly
	Born   = "born"  // from the tormentor: a process is about to start
	Dead   = "dead"  // from the tormentor: it is certainly gone
	Fault  = "fault" // from the tormentor
	Locked = "op"    // one store call of a direct client

	RegistryFails = "registry_fails" // a host was warned about its registry
	RegistryWorks = "registry_works" // a host was told that its registry works again
	Slow          = "slow"           // the store was slow to answer a host's call
	// The store granted a host a start of the limit with a rate named in Target. First is when it
	// was first requested, and Last when it was answered.
	Granted        = "granted"
	RegistryBroken = "registry_broken" // no call of Target (or of any host, if it is empty) can succeed
)

// These are the faults that the checker must know.
const (
	Wiped    = "store_data_lost" // the store loses all data between First and Last
	Failover = "failover"        // another server takes over and may lack some grants
	// The same, but it grants nothing until all earlier leases have ended, so only ticks may start
	// again.
	Replaced = "replaced"
	// A standby takes over. A line with the target Commits says that it lacks some or all commits
	// between First and Last.
	Promoted = "standby_promoted"
	Commits  = "commits"
	// The clocks of all hosts and of the store are set. After a step ahead, leases end early. After
	// a step back, ticks of that time may start again.
	Stepped = "clocks_stepped"
)

// A TimerLine is a timer as declared by a host.
type TimerLine struct {
	Name    string `json:"name"`
	Limit   int    `json:"limit"`
	PerTick int    `json:"per_tick"`
	PerHost int    `json:"per_host"`
	Period  int64  `json:"period"`           // ns
	Shared  int    `json:"shared,omitempty"` // size of the limit that it shares with others, or 0

	// Rated names the limit with a rate that it shares with others, or is "". At most Rate runs of
	// all of them start within Per.
	Rated string `json:"rated,omitempty"`
	Rate  int    `json:"rate,omitempty"`
	Per   int64  `json:"per,omitempty"` // ns
}

// A Log appends lines to a file. Its methods may be called from any goroutine.
type Log struct {
	host string
	file *os.File
	now  func() int64
}

// OpenLog opens the log of one process. now reads CLOCK_MONOTONIC.
func OpenLog(dir, host string, now func() int64) (*Log, error) {
	f, err := os.OpenFile(filepath.Join(dir, host+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return &Log{host: host, file: f, now: now}, err
}

// Write appends one line. It panics on an error, because a process without a log is useless.
func (l *Log) Write(line Line) {
	line.Host = l.host
	if line.At == 0 {
		line.At = l.now()
	}
	b, err := json.Marshal(line)
	if err == nil {
		_, err = l.file.Write(append(b, '\n'))
	}
	if err != nil {
		panic(err)
	}
}

// ReadLogs reads all logs in a directory. The last line of a killed process may be incomplete.
func ReadLogs(dir string) ([]Line, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return nil, err
	}
	var lines []Line
	for _, path := range paths {
		more, err := readLog(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		lines = append(lines, more...)
	}
	return lines, nil
}

func readLog(path string) (lines []Line, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for r := bufio.NewReader(f); ; {
		text, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return lines, nil
		}
		if err != nil {
			return nil, err
		}
		var line Line
		if err := json.Unmarshal(text, &line); err != nil {
			return nil, fmt.Errorf("%w: %.200q", err, text)
		}
		lines = append(lines, line)
	}
}
