package servertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// listenEnv makes the test binary a server that listens on the port it names.
const listenEnv = "SERVERTEST_LISTEN"

func TestMain(m *testing.M) {
	if port := os.Getenv(listenEnv); port != "" {
		_, err := net.Listen("tcp", "127.0.0.1:"+port)
		fmt.Println("listening:", err)
		if err != nil {
			os.Exit(1)
		}
		select {}
	}
	Main(m, func() error { return goleak.Find() })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// listener is a server that only listens.
var listener = Program{
	Name: "listener",
	Command: func(s *Server) (*exec.Cmd, error) {
		self, err := os.Executable()
		cmd := s.Command(self)
		cmd.Env = append(os.Environ(), fmt.Sprint(listenEnv, "=", s.Port()))
		return cmd, err
	},
	Ready: ready("listening: <nil>"),
}

func ready(text string) func(context.Context, *Server, int, string) error {
	return func(_ context.Context, _ *Server, _ int, log string) error {
		if !strings.Contains(log, text) {
			return errors.New("not ready")
		}
		return nil
	}
}

func start(t *testing.T, program Program) *Server {
	t.Helper()
	s, err := Start(program)
	return Own(t, s, err)
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	s := start(t, listener)
	must(t, s.Kill())
	l, err := net.Listen("tcp", s.Addr())
	must(t, err)
	s.mu.Lock()
	err = s.run()
	s.mu.Unlock()
	if !errors.Is(err, errPort) {
		t.Fatalf("start on a port in use: %v", err)
	}
	restarted := make(chan error, 1)
	go func() { restarted <- s.Restart() }()
	must(t, l.Close())
	must(t, <-restarted)
}

func TestSecondPort(t *testing.T) {
	t.Parallel()
	program := listener
	program.SecondPort = 10000
	var servers []*Server
	for range 20 {
		servers = append(servers, start(t, program))
	}
	used := map[int]bool{}
	for _, s := range servers {
		if used[s.Port()] || used[s.Port()+10000] || s.Port()+10000 >= highPort {
			t.Fatalf("port %d", s.Port())
		}
		used[s.Port()], used[s.Port()+10000] = true, true
	}
}

// Whatever happens to a server also happens to its descendants.
func TestDescendants(t *testing.T) {
	t.Parallel()
	sh, err := exec.LookPath("sh")
	Require(t, err, "install a shell")
	s := start(t, Program{
		Name: "family",
		Command: func(s *Server) (*exec.Cmd, error) {
			// The last sleep keeps the shell from replacing itself with the sleep before it.
			return s.Command(sh, "-c", `sh -c 'sleep 1000 & echo ready $$ $!; wait; sleep 1' & wait; sleep 1`), nil
		},
		Ready: ready("ready"),
	})
	var family []*os.Process
	for _, field := range strings.Fields(s.Log() + fmt.Sprint(s.Pid()))[1:] {
		var pid int
		_, err := fmt.Sscan(field, &pid)
		must(t, err)
		one, err := os.FindProcess(pid)
		must(t, err)
		family = append(family, one)
	}
	if len(family) != 3 {
		t.Fatalf("log: %q", s.Log())
	}
	must(t, s.Pause())
	must(t, without(family, "T", "not stopped"))
	must(t, s.Resume())
	must(t, without(family, "SRD", "stopped"))
	must(t, s.Kill())
	must(t, without(family, "Z", "alive"))
}

func TestStartThatFails(t *testing.T) {
	t.Parallel()
	program := listener
	var dir string
	program.Prepare = func(s *Server) error {
		dir = s.Dir()
		_, err := s.Run(s.Command("sh", "-c", "echo some; echo thing >&2; exit 3"))
		return err
	}
	s, err := Start(program)
	if err == nil {
		s.Close()
		t.Fatal("started")
	}
	if text := err.Error(); text != "listener: sh: exit status 3\nsome\nthing\n" {
		t.Errorf("error %q", text)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("folder is left: %v", err)
	}
}

// A recorder is a testing.TB that only records how it ended.
type recorder struct {
	testing.TB
	skipped, failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Name() string          { return "TestRecorded" }
func (r *recorder) Skip(...any)           { r.skipped = true }
func (r *recorder) Fatalf(string, ...any) { r.failed = true }

// Not parallel, because it changes the environment.
func TestRequire(t *testing.T) {
	skips := filepath.Join(t.TempDir(), "skips")
	t.Setenv(skipsEnv, skips)
	t.Setenv(requireEnv, "")
	require := func(missing error) (r recorder) {
		Require(&r, missing, "get it")
		return r
	}
	missing := errors.New("server not found")
	if r := require(nil); r.skipped || r.failed {
		t.Fatalf("with a server: %+v", r)
	}
	for range 2 {
		if r := require(missing); !r.skipped || r.failed {
			t.Fatalf("without a server: %+v", r)
		}
	}
	text, err := os.ReadFile(skips)
	must(t, err)
	if line := "TestRecorded: server not found\n"; string(text) != line+line {
		t.Fatalf("skips: %q", text)
	}
	t.Setenv(requireEnv, "1")
	if r := require(missing); !r.failed {
		t.Fatalf("with %s: %+v", requireEnv, r)
	}
}

// Every server has its own folder, which it can change, created by fill or copied from a template.
//
// Not parallel, because it changes the environment.
func TestFill(t *testing.T) {
	for _, test := range []struct {
		templates string
		want      int
	}{{"", 3}, {t.TempDir(), 1}} {
		t.Setenv(templatesEnv, test.templates)
		filled := 0
		program := listener
		program.Prepare = func(s *Server) error {
			file := filepath.Join(s.Dir(), "data", "file")
			err := s.Fill("data", "program", func() error {
				filled++
				return errors.Join(os.Mkdir(filepath.Dir(file), 0o700), os.WriteFile(file, []byte("filled"), 0o600))
			})
			must(t, err)
			if text, err := os.ReadFile(file); err != nil || string(text) != "filled" {
				t.Errorf("templates in %q: %q, %v", test.templates, text, err)
			}
			return os.WriteFile(file, []byte("changed"), 0o600)
		}
		for range 3 {
			start(t, program)
		}
		if filled != test.want {
			t.Errorf("templates in %q: filled %d times: want %d", test.templates, filled, test.want)
		}
		if left, _ := os.ReadDir(test.templates); test.templates != "" && len(left) != 1 {
			t.Errorf("in the folder of templates: %v: must be one", left)
		}
	}
}
