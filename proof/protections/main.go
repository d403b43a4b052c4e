// Command protections prints the test for each protection in each store and product, and runs those
// tests.
//
//	go run ./proof/protections           the table, and the tests in their short forms
//	go run ./proof/protections -list     the table only
//
// A protection is an answer to a fault that affects every store and product: a clock that was
// ahead, a row locked by another session, a receiver that hangs. A fix in one place is easily
// missing in others. So the table in table.go has a row for each protection and a column for each
// store and product. Each cell names the tests that show the protection, or the reason why it does
// not apply. TestTableIsComplete fails when a cell is empty, a test does not exist, or a store or a
// product has no column.
//
// The last line is JSON: the numbers of rows, columns and cells, and how many cells have a test,
// have a reason, or are missing. The exit status is 1 if a cell is missing, or if a test fails,
// skips, or does not exist.
//
// It does not promise that a test covers a protection completely. Each test's comment says when it
// fails.
package main

import (
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
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

func main() {
	list := flag.Bool("list", false, "print the table, and run nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, *list); err != nil {
		fmt.Fprintln(os.Stderr, "protections:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer, listOnly bool) error {
	top, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	t, faults := parse(slices.Concat(rows, databaseRows), columns, groups)
	print(w, t)
	var failed []string
	for _, f := range faults {
		failed = append(failed, f.Error())
	}
	if !listOnly {
		failed = append(failed, runTests(ctx, w, top, t.tests(false))...)
	}
	for _, f := range failed {
		fmt.Fprintln(w, "FAIL", f)
	}
	line, err := json.Marshal(t.sums())
	if err != nil {
		return err
	}
	fmt.Fprintln(w, string(line))
	if n := len(failed); n > 0 {
		return fmt.Errorf("%d faults", n)
	}
	return nil
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", err
	}
	file := strings.TrimSpace(string(out))
	if file == "" || file == os.DevNull {
		return "", errors.New("run it within the repository")
	}
	return filepath.Dir(file), nil
}

// print prints each row with its cells. Columns with the same tests or reason share a line.
func print(w io.Writer, t table) {
	for i, r := range t.rows {
		fmt.Fprintf(w, "%d. %s\n", i+1, r.protection)
		lines := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, c := range r.cells {
			fmt.Fprintf(lines, "   %s\t%s\n", strings.Join(c.columns, ", "), c)
		}
		lines.Flush()
	}
	fmt.Fprintln(w)
}

// runTests runs the tests of each folder with one go test, and returns the tests that did not pass.
func runTests(ctx context.Context, w io.Writer, top string, byFolder []folderTests) (failed []string) {
	templates, err := os.MkdirTemp("", "tickslot-protections-")
	if err != nil {
		return []string{err.Error()}
	}
	defer os.RemoveAll(templates)
	if err := os.Chmod(templates, 0o755); err != nil { // some servers run as another user
		return []string{err.Error()}
	}
	for _, f := range byFolder {
		began := time.Now()
		notPassed := f.run(ctx, top, append(os.Environ(), "TICKSLOT_TEMPLATES="+templates))
		failed = append(failed, notPassed...)
		fmt.Fprintf(w, "%s: %d of %d passed, %.1fs\n", f.folder, len(f.names)-len(notPassed), len(f.names),
			time.Since(began).Seconds())
	}
	return failed
}

// run runs the tests, and returns those that did not pass, with the reason.
func (f folderTests) run(ctx context.Context, top string, env []string) (notPassed []string) {
	cmd := exec.CommandContext(ctx, "go", "test", "-json", "-trimpath", "-vet=off", "-count=1", "-timeout=20m",
		"-run", f.pattern(), ".")
	cmd.Dir, cmd.Env = filepath.Join(top, filepath.FromSlash(f.folder)), env
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	results, output := map[string]string{}, map[string]string{}
	for line := range strings.Lines(string(out)) {
		var e struct{ Action, Test, Output string }
		if json.Unmarshal([]byte(line), &e) != nil {
			continue
		}
		switch e.Action {
		case "pass", "fail", "skip":
			results[e.Test] = e.Action
		case "output":
			output[e.Test] += e.Output
		}
	}
	for _, name := range f.names {
		// Package testing writes spaces in a subtest's name as underscores.
		ran := strings.ReplaceAll(name, " ", "_")
		switch result := resultOf(results, ran); result {
		case "pass":
		case "":
			notPassed = append(notPassed, fmt.Sprintf("%s.%s did not run (%v)\n%s", f.folder, name, err, output[""]))
		default:
			notPassed = append(notPassed, fmt.Sprintf("%s.%s: %s\n%s", f.folder, name, result, output[ran]))
		}
	}
	return notPassed
}

// resultOf returns the result of a test. The name may also be a common prefix of subtests
// ("TestConformance/mark" of "TestConformance/mark/each outcome"). Such a group has passed if one
// of them has passed and none has failed.
func resultOf(results map[string]string, name string) string {
	if result, ok := results[name]; ok {
		return result
	}
	group := ""
	for test, result := range results {
		if strings.HasPrefix(test, name+"/") && (result == "fail" || group != "fail" && group != "pass") {
			group = result
		}
	}
	return group
}
