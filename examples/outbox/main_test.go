//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/examples/internal/fleettest"
)

func TestMain(m *testing.M) {
	fleettest.Main(main)
	os.Exit(m.Run())
}

// Every order has one invoice, although the shop is killed before it has delivered the message. No
// process or file is left.
//
// Fails when a message is lost with its process, when a message takes effect twice, or when a shop
// or a file outlives the demonstration.
func TestPlay(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	play := fleettest.Command(t, "-json")
	play.Env = append(play.Env, "TMPDIR="+folder)
	var stdout, stderr bytes.Buffer
	play.Stdout, play.Stderr = &stdout, &stderr // the shops inherit it, so Wait also waits for them
	began := time.Now()
	if err := play.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, &stdout, &stderr)
	}
	if took := time.Since(began); took > 45*time.Second {
		t.Errorf("it takes %v", took)
	}
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	last := lines[len(lines)-1]
	form := regexp.MustCompile(`^\{"orders":\d+,"messages":\d+,"deliveries":\d+,"effects":\d+,"lost":0,"doubled":0,` +
		`"kills":3\}$`)
	if !form.MatchString(last) {
		t.Errorf("the last line is %s\n%s%s", last, &stdout, &stderr)
	}
	var r report
	if err := json.Unmarshal([]byte(last), &r); err != nil {
		t.Fatal(err)
	}
	if r.Orders < 90 || r.Messages != r.Orders || r.Effects != r.Orders || r.Deliveries < r.Orders {
		t.Errorf("%+v", r)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// A shop that cannot use its files reports it.
func TestBadFolder(t *testing.T) {
	t.Parallel()
	out, err := fleettest.Command(t, "-folder", t.TempDir()+"/none").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "outbox: ") {
		t.Errorf("%v: %s", err, out)
	}
}
