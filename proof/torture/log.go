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

// A Line is one entry of a log. Every process has a log of its own and appends each line with one
// write, so that what it wrote outlives a kill -9. Its instants are nanoseconds of CLOCK_MONOTONIC,
// which all processes of a machine share.
type Line struct {
	Kind string `json:"k"`
	Host string `json:"host"` // one life of one process
	At   int64  `json:"at"`

	// Begin, and Born for the limits.
	Timers []TimerLine `json:"timers,omitempty"`
	// Born: what leaders compete for. Only the name and the limit count.
	Roles []TimerLine `json:"roles,omitempty"`

	// Seen: a run, or a leader, was valid by its own check at First, at Last, and now and then in
	// between. Degraded: the same for a run that said it was.
	Timer string `json:"timer,omitempty"`
	Slot  int    `json:"slot,omitempty"`
	Fence int64  `json:"fence,omitempty"`
	Tick  int64  `json:"tick,omitempty"` // µs, as the host's wall clock had it
	Run   int64  `json:"run,omitempty"`  // which run of the process
	First int64  `json:"first,omitempty"`
	Last  int64  `json:"last,omitempty"`
	Lost  bool   `json:"lost,omitempty"` // its context had ended with dlock.ErrLost before First

	// Status and End: what the scheduler reports, by timer in the order of Begin.
	Ticks []uint64 `json:"ticks,omitempty"`
	Done  []uint64 `json:"done,omitempty"` // ticks that started a run, or were skipped with a reason

	// Jump, and Fault for Stepped: the wall clock was set on (or back) by so much.
	By int64 `json:"by,omitempty"`

	// End: what a host that was shut down left behind.
	Leaked int    `json:"leaked,omitempty"`
	Stuck  string `json:"stuck,omitempty"`

	// Fault, RegistryBroken: what was done to whom, from First to Last. RegistryFails: why.
	Fault  string `json:"fault,omitempty"`
	Target string `json:"target,omitempty"`

	Op *Op `json:"op,omitempty"`

	// Of durable runs. Looked: how many run, by handler, unless there was no answer.
	Work    *Work          `json:"work,omitempty"`
	Running map[string]int `json:"running,omitempty"`
	Failed  bool           `json:"failed,omitempty"`

	// Of an outbox.
	Message *Message `json:"message,omitempty"`
}

// The kinds of lines.
const (
	Begin    = "begin"    // a host is about to run its timers
	Seen     = "seen"     // a run was valid
	Degraded = "degraded" // a run went on without the store
	LeaseEnd = "lost"     // a run's context ended with dlock.ErrLost
	// a run was neither valid nor degraded for more than a second awake, and its context had not
	// ended
	Untold = "untold"
	Status = "status" // several times a second
	Jump   = "jump"
	Drain  = "drain" // a host is shutting down: nothing comes due any more
	End    = "end"   // a host has stopped, cleanly
	Born   = "born"  // of the tormentor: a process is about to be started
	Dead   = "dead"  // of the tormentor: it is gone for sure
	Fault  = "fault" // of the tormentor
	Locked = "op"    // one call to the store, by a client that does nothing else

	RegistryFails = "registry_fails" // a host was warned that its registry fails
	RegistryWorks = "registry_works" // it was told that it works again
	Slow          = "slow"           // the store took long to answer a call of a host
	// the store granted a host a start of the limit with a rate that Target names, between First,
	// when it was first asked, and Last, when it had answered
	Granted        = "granted"
	RegistryBroken = "registry_broken" // no call of Target (or, if there is none, of any host) can go well
)

// Kinds of faults that the checker has to know of.
const (
	Wiped    = "store_data_lost" // the store forgets everything, somewhere between First and Last
	Failover = "failover"        // another server takes over, which may not know what this one granted
	// the same, and it grants nothing until all that was granted has ended: only ticks may be
	// started again
	Replaced = "replaced"
	// a standby takes over: in a line whose target is Commits it has nothing of what was committed
	// between First and Last, or a part
	Promoted = "standby_promoted"
	Commits  = "commits"
	// the clocks of all hosts and of the store are set: when they are set on, leases end early, and
	// when they are set back, ticks of that time may be started again
	Stepped = "clocks_stepped"
)

// A TimerLine is a timer as a host declared it.
type TimerLine struct {
	Name    string `json:"name"`
	Limit   int    `json:"limit"`
	PerTick int    `json:"per_tick"`
	PerHost int    `json:"per_host"`
	Period  int64  `json:"period"`           // ns
	Shared  int    `json:"shared,omitempty"` // the size of the limit that it shares with others; 0: none

	// Rated names the limit with a rate that it shares with others; "": none. Of all of them at
	// most Rate runs start within Per.
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

// Write appends one line. A log that cannot be written makes the process useless.
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

// ReadLogs reads all logs of a folder. The last line of a process that was killed may be torn.
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
