package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"syscall"
	"time"
)

// CPU time and memory are measured in a separate process: this program, started with a spec instead
// of flags. It sets itself up, prints a line, and then measures for the duration in each line that
// it reads. It ends when its standard input does.

// A spec tells a child what to measure.
type spec struct {
	Kind    string        // a key of kinds
	N       int           // timers, or leases
	Metrics bool          // register the scheduler's metrics
	Redis   string        // address, or "" for no store
	Warm    time.Duration // run this long before measuring
	Bytes   bool          // report the memory per timer
	Fired   bool          // report it again after they have fired, some seconds later
	Value   string        // the extra figure of a scheduler that is its value
	Every   time.Duration // period of all timers (0: random), or of the heartbeat
	AtOnce  bool          // all timers are due at the same instants

	Postgres string        // data source name of a relay's database
	TTL      time.Duration // of a relay
	Name     string        // of a relay
}

// kinds maps the kind of a spec to a function that sets up the child.
var kinds = map[string]func(spec) (runner, error){
	"tickslot":           tickslotFires,
	"robfig":             robfigFires,
	"gocron":             gocronFires,
	"wakes":              bareWakes,
	"heartbeat-tickslot": tickslotBeats,
	"heartbeat-redsync":  redsyncBeats,
	"heartbeat-bsm":      bsmBeats,
	"relay":              relayInChild,
}

const childFlag = "child"

// profilesEnv names the directory for CPU profiles, or "". It is an environment variable so that
// children inherit it.
const profilesEnv = "TICKSLOT_BENCH_PROFILES"

// child is main in a child process.
func child(text string) error {
	var s spec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	p, err := kinds[s.Kind](s)
	if err != nil {
		return err
	}
	time.Sleep(s.Warm)
	if dir := os.Getenv(profilesEnv); dir != "" {
		stop, err := profile(filepath.Join(dir, fmt.Sprintf("%s-%d-%d.pprof", s.Kind, s.N, os.Getpid())))
		if err != nil {
			return err
		}
		defer stop()
	}
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode("ready"); err != nil {
		return err
	}
	in := json.NewDecoder(os.Stdin)
	for {
		var window time.Duration
		if err := in.Decode(&window); errors.Is(err, io.EOF) {
			return nil // the process ends, and with it all that still runs
		} else if err != nil {
			return err
		}
		got, err := p.measure(window)
		if err != nil {
			got.Error = err.Error()
		}
		if err := out.Encode(got); err != nil {
			return err
		}
	}
}

func profile(path string) (stop func(), err error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close()
	}, nil
}

// A childRunner is the parent's side of a child.
type childRunner struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// inChild returns a function that starts a case in its own process.
func inChild(s spec) func() (runner, error) {
	return func() (runner, error) {
		text, err := json.Marshal(s)
		if err != nil {
			return nil, err
		}
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		c := &childRunner{cmd: exec.Command(self, childFlag, string(text))}
		c.cmd.Stderr = os.Stderr
		out, err := c.cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		c.out = bufio.NewReader(out)
		if c.in, err = c.cmd.StdinPipe(); err != nil {
			return nil, err
		}
		if err := c.cmd.Start(); err != nil {
			return nil, err
		}
		var ready string
		if err := c.read(&ready); err != nil {
			return nil, errors.Join(err, c.close())
		}
		return c, nil
	}
}

func (c *childRunner) read(v any) error {
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("its process does not answer: %w", err)
	}
	return json.Unmarshal(line, v)
}

func (c *childRunner) measure(window time.Duration) (s sample, err error) {
	if err := json.NewEncoder(c.in).Encode(window); err != nil {
		return s, err
	}
	err = c.read(&s)
	return s, err
}

// childGrace is how long a child may take to end.
const childGrace = 30 * time.Second

func (c *childRunner) close() error {
	err := c.in.Close()
	killer := time.AfterFunc(childGrace, func() { _ = c.cmd.Process.Kill() })
	defer killer.Stop()
	return errors.Join(err, c.cmd.Wait())
}

// kill kills the child, as if its machine had lost power.
func (c *childRunner) kill() error {
	err := c.cmd.Process.Kill()
	_ = c.cmd.Wait() // it returns the error of a killed process
	return err
}

// cpu returns the CPU time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
