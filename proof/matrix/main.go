// Command matrix runs the suites for stores on all servers named in the documents, and records the
// results. It attacks the claim that every store keeps its part of the promises.
//
//	go run ./proof/matrix                   all servers
//	go run ./proof/matrix -only 'MySQL|13'  those whose product and version match
//	go run ./proof/matrix -write            and what the documents say of them
//
// scripts/fetch.sh fetches a server that is not installed. A server that cannot be fetched is
// listed in not_fetched and does not count as passed. Each row shows the number of passed tests for
// each part. The last line is JSON: the number of servers, how many passed, failed and were
// skipped, and which could not be fetched. The exit status is 1 unless all have passed.
//
// With -write, the results replace older ones of the same servers in docs/tested.json and in the
// tables of README.md, docs/redis.md and docs/sql.md. TestDocumentsSayWhatWasRun checks that these
// agree.
//
// It does not promise that a server has no faults: torture does not run here.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

func main() {
	only := flag.String("only", "", "a regular expression: run only the servers whose product and version match")
	write := flag.Bool("write", false, "write the results into "+tested+", README.md and docs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, *only, *write); err != nil {
		fmt.Fprintln(os.Stderr, "matrix:", err)
		stop()
		os.Exit(1)
	}
}

// A result is the result of a run on one server.
type result struct {
	Product string         `json:"product"`
	Version string         `json:"version"`
	Date    string         `json:"date"`
	Passed  map[string]int `json:"passed"` // number of tests, by part

	failed []string
	took   time.Duration
}

// A summary is the last line of the output.
type summary struct {
	Servers    int      `json:"servers"`
	Passed     int      `json:"passed"`
	Failed     int      `json:"failed"`
	Skipped    int      `json:"skipped"`
	NotFetched []string `json:"not_fetched"`
}

func run(ctx context.Context, w io.Writer, only string, write bool) error {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	top, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/tickslot/tickslot").Output()
	if err != nil {
		return err
	}
	m := matrix{top: strings.TrimSpace(string(top)), w: w, built: map[string]string{}}
	if m.dir, err = os.MkdirTemp("", "tickslot-matrix-"); err != nil {
		return err
	}
	defer os.RemoveAll(m.dir)
	if err := os.Chmod(m.dir, 0o755); err != nil { // some servers refuse root and run as another user
		return err
	}
	var results []result
	sum := summary{NotFetched: []string{}}
	for _, s := range servers {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		name := s.Product
		program, err := m.program(ctx, s)
		if err == nil {
			name += " " + version(ctx, program)
		} else {
			name += " " + s.fetch
		}
		if !wanted.MatchString(name) {
			continue
		}
		sum.Servers++
		switch {
		case err != nil && s.fetch != "":
			sum.NotFetched = append(sum.NotFetched, s.fetch)
			fmt.Fprintf(w, "%-20s not fetched: %v\n", name, err)
			continue
		case err != nil:
			sum.Skipped++
			fmt.Fprintf(w, "%-20s is not installed: %v\n", name, err)
			continue
		}
		r := m.row(ctx, s, program)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		fmt.Fprintln(w, r)
		for _, f := range r.failed {
			fmt.Fprintln(w, "    "+strings.ReplaceAll(f, "\n", "\n    "))
		}
		if len(r.failed) > 0 {
			sum.Failed++
			continue
		}
		sum.Passed++
		results = append(results, r)
	}
	if write {
		err = record(m.top, results)
	}
	line, jsonErr := json.Marshal(sum)
	fmt.Fprintf(w, "%s\n", line)
	if sum.Passed < sum.Servers || sum.Servers == 0 {
		err = errors.Join(err, errors.New("not all servers passed"))
	}
	return errors.Join(err, jsonErr)
}

// String returns a row of the output.
func (r result) String() string {
	parts := []string{}
	for _, part := range []string{"locks", "registry", "durable", "outbox"} {
		if n, ok := r.Passed[part]; ok {
			parts = append(parts, fmt.Sprintf("%s %d", part, n))
		}
	}
	verdict := "passed"
	if len(r.failed) > 0 {
		verdict = "FAILED"
	}
	return fmt.Sprintf("%-20s %s  %-50s %.1f min", r.Product+" "+r.Version, verdict, strings.Join(parts, ", "),
		r.took.Minutes())
}

type matrix struct {
	top, dir string
	w        io.Writer
	built    map[string]string
}

// program returns the program of a server, and fetches it if necessary.
func (m matrix) program(ctx context.Context, s server) (string, error) {
	if s.fetch == "" {
		return sqltest.Program(s.kind)
	}
	cmd := exec.CommandContext(ctx, "sh", "scripts/fetch.sh", s.fetch)
	cmd.Dir = m.top
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = errors.New(strings.TrimSpace(string(exit.Stderr)))
		}
		return "", err
	}
	return strings.TrimSpace(strings.TrimPrefix(string(out), s.fetch+" ")), nil
}

var number = regexp.MustCompile(`\d+\.\d+(\.\d+)?`)

// version returns the version that a program prints.
func version(ctx context.Context, program string) string {
	out, _ := exec.CommandContext(ctx, program, "--version").Output()
	text := strings.ReplaceAll(string(out), program, "") // the path may contain another number
	return cmp.Or(number.FindString(text), "of an unknown version")
}

// row runs the suites on a server.
func (m matrix) row(ctx context.Context, s server, program string) (r result) {
	r = result{Product: s.Product, Version: version(ctx, program), Date: time.Now().UTC().Format(time.DateOnly),
		Passed: map[string]int{}}
	from := time.Now()
	for _, suite := range s.suites {
		out, err := m.suite(ctx, s.kind, program, suite)
		passed := leaves(out)
		r.Passed[suite.Part] += passed
		switch {
		case strings.Contains(out, servertest.Canary):
			r.failed = append(r.failed, suite.dir+": the output has the password of a server")
		case err != nil:
			r.failed = append(r.failed, fmt.Sprintf("%s %s: %v\n%s", suite.dir, suite.run, err, faults(out)))
		case passed == 0:
			r.failed = append(r.failed, suite.dir+" "+suite.run+": no test ran")
		}
	}
	r.took = time.Since(from)
	return r
}

// suite runs the tests of a suite on a server, and returns their output.
func (m matrix) suite(ctx context.Context, kind, program string, s suite) (string, error) {
	binary := m.built[s.dir]
	if binary == "" {
		binary = filepath.Join(m.dir, strings.ReplaceAll(s.dir, "/", "-")+".test")
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-trimpath", "-vet=off",
			"-gcflags=modernc.org/...=-race=false", "-o", binary, "./"+s.dir)
		cmd.Dir = m.top
		if out, err := cmd.CombinedOutput(); err != nil {
			return string(out), err
		}
		m.built[s.dir] = binary
	}
	cmd := exec.CommandContext(ctx, binary, "-test.v", "-test.timeout=10m", "-test.run="+s.run)
	cmd.Dir = filepath.Join(m.top, s.dir)
	cmd.Env = append(os.Environ(), "TICKSLOT_SERVER_"+kind+"="+program, "TICKSLOT_TEMPLATES="+m.dir)
	if s.long {
		// The second variable makes the tests run in this process, where they are counted.
		cmd.Env = append(cmd.Env, "TICKSLOT_LONG=1", "TICKSLOT_TEST_BEHIND_PGBOUNCER=1")
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

var passes = regexp.MustCompile(`(?m)^ *--- PASS: (\S+)`)

// leaves counts the passed tests that have no subtests.
func leaves(out string) (n int) {
	parents := map[string]bool{}
	names := passes.FindAllStringSubmatch(out, -1)
	for _, name := range names {
		for at, c := range name[1] {
			if c == '/' {
				parents[name[1][:at]] = true
			}
		}
	}
	for _, name := range names {
		if !parents[name[1]] {
			n++
		}
	}
	return n
}

var fault = regexp.MustCompile(`^ *--- FAIL|^ *\S+_test\.go:|^ *\w+\.go:\d+|^panic:`)

// faults returns the lines of an output that describe failures.
func faults(out string) string {
	var lines []string
	for line := range strings.Lines(out) {
		if fault.MatchString(line) {
			lines = append(lines, strings.TrimRight(line, "\n"))
		}
	}
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}
