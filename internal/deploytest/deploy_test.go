// Package deploytest reads the files of deploy/ with the libraries of their users: Docker Compose,
// the image builder, and Kubernetes. It is a separate module, because these libraries are large. It
// starts nothing, so it does not show that the deployments run.
package deploytest

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// root is the path to the root of the repository.
const root = "../.."

// cancelGrace is timer.CancelGrace: the time that handlers have after DrainTimeout.
const cancelGrace = 5 * time.Second

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// longest returns the maximum time that a program of examples/ may take to end after SIGTERM.
func longest(t *testing.T, example string, args []string) time.Duration {
	t.Helper()
	program := read(t, "examples/"+example+"/main.go")
	seconds := func(pattern string) time.Duration {
		found := regexp.MustCompile(pattern).FindStringSubmatch(program)
		if found == nil {
			t.Fatalf("nothing in examples/%s is like %s", example, pattern)
		}
		n, _ := strconv.Atoi(found[1])
		return time.Duration(n) * time.Second
	}
	preStop, err := time.ParseDuration(argument(t, args, "-prestop"))
	if err != nil {
		t.Fatal(err)
	}
	if preStop < 2*time.Second {
		t.Errorf("-prestop %v is shorter than a load balancer takes to notice", preStop)
	}
	return preStop + seconds(`DrainTimeout: (\d+) \* time.Second`) + cancelGrace +
		seconds(`WithoutCancel\(ctx\), (\d+)\*time.Second`)
}

// argument returns the value of a flag, which must exist in the program.
func argument(t *testing.T, args []string, flag string) string {
	t.Helper()
	for i := range len(args) - 1 {
		if args[i] == flag {
			return args[i+1]
		}
	}
	t.Fatalf("%q has no %s", args, flag)
	return ""
}

// port returns the port that the given flag sets.
func port(t *testing.T, args []string, flag string) string {
	t.Helper()
	host, port, found := strings.Cut(argument(t, args, flag), ":")
	if host != "" || !found {
		t.Errorf("%q serves nobody outside of its container", args)
	}
	return port
}

// pinned fails the test if an image can change without notice.
func pinned(t *testing.T, image string) {
	t.Helper()
	_, tag, found := strings.Cut(image, ":")
	if !found || tag == "" || tag == "latest" {
		t.Errorf("image %q: name a version", image)
	}
}

// probes are the paths that a program of examples/ serves.
var probes = []string{"/startupz", "/livez", "/readyz"}
