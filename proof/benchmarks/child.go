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

// CPU time and memory are measured in a process of their own: this program again, with a spec
// instead of flags. It sets itself up, prints a line, and then measures for as long as each line
// that it reads says. It ends with its standard input.

// A spec says what a child is to do.
type spec struct {
	Kind    string        // one of kinds
	N       int           // timers, or leases
	Metrics bool          // the scheduler has a registry
	Redis   string        // address; "": no store
	Warm    time.Duration // how long it runs before it is measured
	Bytes   bool          // report how much memory each timer takes
	Fired   bool          // report it again after they have fired, which takes some seconds
	Value   string        // which extra figure of a scheduler is its value
	Every   time.Duration // period of all timers, 0: random; of the heartbeat
	AtOnce  bool          // all timers are due at the same instants

	Postgres string        // data source name of a relay's database
	TTL      time.Duration // of a relay
	Name     string        // of a relay
}

// kinds has what a child can set up, by the kind of its spec.
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

// profiles is where CPU profiles go; "": nowhere. Children get it as a variable of their
// environment.
const profilesEnv = "TICKSLOT_BENCH_PROFILES"

// child is main in a child.
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
			return nil // whatever still runs ends with the process
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

// A childRunner is the parent's end of a child.
type childRunner struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// inChild is a case in a process of its own.
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

// kill ends the child as if its machine had lost power.
func (c *childRunner) kill() error {
	err := c.cmd.Process.Kill()
	_ = c.cmd.Wait() // it says that it was killed
	return err
}

// cpu is the CPU time that this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
