// Command mutants plants bugs, one at a time, and checks that the intended tests find them. It
// attacks the tests themselves.
//
//	go run ./proof/mutants                   all of them
//	go run ./proof/mutants 'naive DEL' N+1   these
//
// The bugs exist only in the tables of this package: the compiler gets patched copies of the files
// (go build -overlay). First, every layer must pass without a bug, or at least raise no alarm,
// because a layer that fails anyway proves nothing. A mutant is killed if its layer reports the
// broken promise. A mutant that does not compile, crashes or takes too long is not killed. If all
// are killed, the last line is "10/10"; otherwise the exit status is 1.
//
// It does not promise that the tests would find every other bug. A layer that finds bugs by chance
// (torture) may miss one.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// patience bounds the run of a layer. Those in the table take seconds.
const patience = 2 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, names []string) error {
	chosen, err := choose(names)
	if err != nil {
		return err
	}
	top, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "tickslot-mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	g := gate{top: top, dir: dir}
	if err := g.baseline(ctx, chosen); err != nil {
		return err
	}
	killed := 0
	for i, m := range chosen {
		began := time.Now()
		line, err := g.kill(ctx, m, fmt.Sprint("mutant", i))
		if ctx.Err() != nil {
			return ctx.Err()
		}
		took := time.Since(began).Seconds()
		if err != nil {
			fmt.Printf("ALIVE   %s  under %s  (%.1fs): %v\n", m.name, m.layer, took, err)
			continue
		}
		killed++
		fmt.Printf("killed  %s  by %s  (%.1fs): %s\n", m.name, m.layer, took, line)
	}
	fmt.Printf("%d/%d\n", killed, len(chosen))
	if killed < len(chosen) {
		return errors.New("not every planted bug was found by the layer that is meant to find it")
	}
	return nil
}

func choose(names []string) ([]mutant, error) {
	if len(names) == 0 {
		return mutants, nil
	}
	var chosen []mutant
	for _, name := range names {
		i := slices.IndexFunc(mutants, func(m mutant) bool { return m.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no mutant %q: see proof/mutants/table.go", name)
		}
		chosen = append(chosen, mutants[i])
	}
	return chosen, nil
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/tickslot/tickslot").Output()
	if err != nil {
		return "", fmt.Errorf("go list -m: %w: run it inside the repository", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// A gate builds and runs layers.
type gate struct {
	top string // root of the repository
	dir string // directory for built programs
}

// baseline runs every layer without a bug.
func (g gate) baseline(ctx context.Context, chosen []mutant) error {
	programs := map[string]string{}
	done := map[string]bool{}
	for _, m := range chosen {
		l := m.layer
		if done[l.String()] {
			continue
		}
		done[l.String()] = true
		if programs[l.pkg] == "" {
			program := filepath.Join(g.dir, fmt.Sprint("baseline", len(programs)))
			if err := g.build(ctx, l, "", program); err != nil {
				return err
			}
			programs[l.pkg] = program
		}
		began := time.Now()
		out, err := g.start(ctx, l, programs[l.pkg])
		if err != nil && l.alarm != "" && ctx.Err() == nil { // a busy machine may cause a failure without a bug
			fmt.Printf("fails   without a bug  %s  (%.1fs), so once more\n%s\n", l, time.Since(began).Seconds(),
				strings.TrimSpace(tail(out)))
			out, err = g.start(ctx, l, programs[l.pkg])
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if l.weak(out, err) {
			fmt.Printf("no alarm without a bug  %s  (%.1fs), but too little happened for it to pass\n", l,
				time.Since(began).Seconds())
			continue
		}
		if err == nil && l.test != "" && !strings.Contains(out, "--- PASS: ") {
			err = errors.New("no test ran")
		}
		if err != nil {
			return fmt.Errorf("%s fails without a planted bug, so it proves nothing: %w\n%s", l, err, tail(out))
		}
		fmt.Printf("passes  without a bug  %s  (%.1fs)\n", l, time.Since(began).Seconds())
	}
	return nil
}

// weak reports whether a layer failed only because too little happened, which means that it raised
// no alarm.
func (l layer) weak(out string, err error) bool {
	_, failed := errors.AsType[*exec.ExitError](err)
	return failed && l.alarm != "" && !strings.Contains(out, l.alarm) && !crashed(out)
}

// crashed reports whether a program panicked. A test that times out also panics.
func crashed(out string) bool {
	return strings.Contains(out, "\npanic: ") || strings.Contains(out, "\nfatal error: ")
}

// kill returns the output line that reports the planted bug.
func (g gate) kill(ctx context.Context, m mutant, name string) (string, error) {
	overlay, err := g.plant(m, name)
	if err != nil {
		return "", err
	}
	program := filepath.Join(g.dir, name+".program")
	if err := g.build(ctx, m.layer, overlay, program); err != nil {
		return "", err
	}
	defer os.Remove(program)
	out, err := g.start(ctx, m.layer, program)
	return verdict(m, out, err)
}

// plant writes patched copies and the overlay file that makes the compiler use them.
func (g gate) plant(m mutant, name string) (overlay string, err error) {
	replace := map[string]string{}
	for _, file := range m.files() {
		text, err := os.ReadFile(filepath.Join(g.top, file))
		if err != nil {
			return "", err
		}
		patched, err := m.patch(file, string(text))
		if err != nil {
			return "", err
		}
		copied := filepath.Join(g.dir, fmt.Sprint(name, ".", len(replace), filepath.Ext(file)))
		if err := os.WriteFile(copied, []byte(patched), 0o644); err != nil {
			return "", err
		}
		replace[filepath.Join(g.top, file)] = copied
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(g.dir, name+".json")
	return overlay, os.WriteFile(overlay, text, 0o644)
}

func (m mutant) files() []string {
	var files []string
	for _, e := range m.edits {
		if !slices.Contains(files, e.file) {
			files = append(files, e.file)
		}
	}
	return files
}

// patch returns the text of a file with the bug planted.
func (m mutant) patch(file, text string) (string, error) {
	for _, e := range m.edits {
		if e.file != file {
			continue
		}
		if n := strings.Count(text, e.old); n != 1 {
			return "", fmt.Errorf("%s has %d times what the mutant is to replace, want once: "+
				"correct proof/mutants/table.go: %q", file, n, e.old)
		}
		text = strings.Replace(text, e.old, e.new, 1)
	}
	return text, nil
}

// build builds the program of a layer, without a bug if overlay is "".
func (g gate) build(ctx context.Context, l layer, overlay, program string) error {
	args := []string{"build"}
	if l.test != "" {
		args = []string{"test", "-c"}
	}
	args = append(args, "-o", program, "-overlay", overlay, "./"+l.pkg)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = g.top
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("it does not compile: %w\n%s", err, out)
	}
	return nil
}

// longProofs is the environment variable that enables the long proofs.
const longProofs = "TICKSLOT_LONG=1"

var errTooLong = errors.New("it took too long")

// start runs the program of a layer. A test whose server is missing fails.
func (g gate) start(ctx context.Context, l layer, program string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errTooLong)
	defer cancel()
	args := l.args
	if l.test != "" {
		args = append([]string{"-test.v", "-test.run", l.test}, l.args...)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = g.top
	if l.test != "" {
		cmd.Dir = filepath.Join(g.top, l.pkg)
	}
	cmd.Env = append(os.Environ(), "TICKSLOT_REQUIRE_SERVERS=1", "TMPDIR="+g.dir) // logs are deleted with the directory
	if l.long {
		cmd.Env = append(cmd.Env, longProofs)
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return string(out), err
}

// verdict returns the output line in which a layer reports the planted bug, or an error if there is
// none.
func verdict(m mutant, out string, err error) (line string, _ error) {
	exit, failed := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return "", errors.New("its layer passes")
	case !failed || exit.ExitCode() != 1 && m.layer.test == "":
		return "", fmt.Errorf("its layer could not be run to its end: %w\n%s", err, tail(out))
	case crashed(out):
		return "", fmt.Errorf("a crash or a time-out, which any bug may cause:\n%s", tail(out))
	case m.layer.test != "" && !strings.Contains(out, "--- FAIL: "):
		return "", fmt.Errorf("no test failed:\n%s", tail(out))
	}
	at := regexp.MustCompile(m.says).FindStringIndex(out)
	if at == nil {
		return "", fmt.Errorf("it failed, but not by saying %s:\n%s", m.says, tail(out))
	}
	// Of a long line, only what follows the match.
	const most = 200
	from, to := strings.LastIndexByte(out[:at[0]], '\n')+1, len(out)
	if n := strings.IndexByte(out[at[1]:], '\n'); n >= 0 {
		to = at[1] + n
	}
	if to-from > most {
		from = at[0]
		to = max(at[1], min(to, from+most))
	}
	return strings.TrimSpace(strings.ToValidUTF8(out[from:to], "")), nil
}

func tail(out string) string {
	const most = 4000
	return out[max(0, len(out)-most):]
}
