package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// A report is the output of -json.
type report struct {
	Hosts      int    `json:"hosts"`
	Leases     int    `json:"leases"`
	Leader     string `json:"leader"`
	After      string `json:"leader_after_kill"`
	FailoverMS int64  `json:"failover_ms"` // from the kill until all survivors name the same new leader
	Agree      bool   `json:"agree"`
}

// play starts three hosts, kills the leader, and prints the next leader. When it returns, no
// process and no file is left.
func play(ctx context.Context, asJSON bool) (err error) {
	folder, err := os.MkdirTemp("", "tickslot-registry-")
	if err != nil {
		return err
	}
	ctx, end := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("the hosts do not agree"))
	var hosts []*host
	defer func() {
		end()
		for _, h := range hosts {
			_ = h.Wait() // reaps hosts that ended, and the killed one
		}
		err = errors.Join(err, os.RemoveAll(folder))
	}()
	for range 3 {
		h, err := start(ctx, filepath.Join(folder, "fleet.db"))
		if err != nil {
			return err
		}
		hosts = append(hosts, h)
	}

	began := time.Now()
	tell := func(format string, args ...any) {
		fmt.Printf("%5.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	first, err := agree(ctx, hosts, func(a answer) bool { return a.Hosts == 3 && a.Leases > 1 })
	if err != nil {
		return err
	}
	r := report{Hosts: first.Hosts, Leases: first.Leases, Leader: first.Held[0].Holder}
	tell("%d hosts hold %d leases, and all say that %s leads", r.Hosts, r.Leases, r.Leader)

	leads := slices.IndexFunc(hosts, func(h *host) bool { return h.node == r.Leader })
	if leads < 0 {
		return fmt.Errorf("%s is no host of this play", r.Leader)
	}
	if err := hosts[leads].Process.Kill(); err != nil {
		return err
	}
	killed := time.Now()
	tell("kill -9 %d", hosts[leads].Process.Pid)
	survivors := slices.Delete(slices.Clone(hosts), leads, leads+1)
	next, err := agree(ctx, survivors, func(a answer) bool { return a.Held[0].Holder != r.Leader })
	if err != nil {
		return err
	}
	r.After, r.FailoverMS, r.Agree = next.Held[0].Holder, time.Since(killed).Milliseconds(), true
	tell("both survivors say that %s leads, %d ms after the kill", r.After, r.FailoverMS)
	if asJSON {
		return json.NewEncoder(os.Stdout).Encode(r)
	}
	return nil
}

// A host is a process of the demonstration.
type host struct {
	*exec.Cmd
	url  string
	node string // its name
}

// start starts this program as a host. The host ends with ctx, or when this process ends, which
// closes the host's standard input.
func start(ctx context.Context, file string) (*host, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	h := &host{Cmd: exec.CommandContext(ctx, self, "-played", "-db", file)}
	h.Stderr = os.Stderr
	in, err := h.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := h.StdoutPipe()
	if err != nil {
		return nil, err
	}
	h.Cancel = in.Close            // stops the host cleanly
	h.WaitDelay = 10 * time.Second // then kills it
	if err := h.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		return nil, errors.Join(errors.New("a host did not start"), h.Wait())
	}
	h.url = lines.Text()
	return h, nil
}

// agree polls all hosts until they name the same leader and wanted accepts their answers.
func agree(ctx context.Context, hosts []*host, wanted func(answer) bool) (a answer, err error) {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		leader := ""
		for _, h := range hosts {
			if a, err = h.ask(ctx); err == nil && a.Err != "" {
				err = errors.New(a.Err)
			}
			if err == nil && (len(a.Held) != 1 || !wanted(a) || leader != "" && leader != a.Held[0].Holder) {
				err = fmt.Errorf("not yet agreed: %+v", a)
			}
			if err != nil {
				break
			}
			h.node, leader = a.Node, a.Held[0].Holder
		}
		if err == nil {
			return a, nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return a, errors.Join(context.Cause(ctx), err)
		}
	}
}

// ask sends GET /who to the host.
func (h *host) ask(ctx context.Context) (a answer, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url+"/who?kind=leader", nil)
	if err != nil {
		return a, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return a, err
	}
	defer response.Body.Close()
	return a, json.NewDecoder(response.Body).Decode(&a)
}
