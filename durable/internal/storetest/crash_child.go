//go:build unix

package storetest

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
)

const (
	crashPeriod = 20 * time.Millisecond // period of the schedule
	crashLease  = 300 * time.Millisecond
	crashActive = 3
)

var (
	crashing      = store.Handler{Name: "orders", MaxAttempts: 1000, MaxConcurrency: 2}
	crashTicks    = store.Schedule{Name: "ticks", Handler: "mails", Spec: "1"}
	crashHandlers = []store.Handler{crashing, {Name: "mails", MaxAttempts: 1000}}
)

// A Killer kills this process at a statement, so that no further code runs. A wrapper between the
// store and its database calls Statement before each statement.
type Killer struct {
	when string // "count" means never
	at   string // the statement's name, "#", and the number of its execution

	mu       sync.Mutex
	executed map[string]int
}

// Statement must be called just before the named statement is executed. If the process must die
// during the statement, begun is not nil. Call begun once the statement has begun; it does not
// return.
func (k *Killer) Statement(name string) (begun func()) {
	k.mu.Lock()
	k.executed[name]++
	now := k.at == fmt.Sprint(name, "#", k.executed[name])
	k.mu.Unlock()
	switch {
	case k.when == "count":
		fmt.Println("statement", name)
		return nil
	case !now:
		return nil
	}
	fmt.Println("killed", k.when, name)
	die := func() {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	if k.when == "before" {
		die()
	}
	return die
}

// Child runs a worker until it is killed at a statement or its input ends. env is the value of
// Crash.Env. ok is false if env is empty.
func Child(env string, open func(arg string, k *Killer) (store.Store, error)) (ok bool) {
	k := &Killer{executed: map[string]int{}}
	var arg string
	if n, _ := fmt.Sscanf(env, "%s %s %s", &k.when, &k.at, &arg); n != 3 {
		return false
	}
	err := func() error {
		s, err := open(arg, k)
		if err != nil {
			return err
		}
		name := fmt.Sprint("worker-", os.Getpid())
		if k.when == "count" {
			return Cycle(s, name, 0)
		}
		stop := make(chan struct{})
		go func() { _, _ = io.Copy(io.Discard, os.Stdin); close(stop) }()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return nil
			default:
			}
			if err := Cycle(s, name, i); err != nil {
				return err
			}
			time.Sleep(2 * time.Millisecond) // let the other processes work
		}
	}()
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	os.Exit(0)
	return true
}

// Cycle makes every call that a worker makes, and prints the changes that it knows to be committed.
func Cycle(s store.Store, name string, i int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := s.Register(ctx, name, crashHandlers, []store.Schedule{crashTicks}, i == 0); err != nil {
		return err
	}
	key := fmt.Sprint(name, "-", i)
	queued, err := s.Insert(ctx, nil, store.NewRun{Handler: crashing.Name, Key: key})
	if err != nil {
		return err
	}
	fmt.Println("queued", queued[0].ID, key)
	due, err := s.Due(ctx, store.DueSchedule{}, 1000)
	if err != nil {
		return err
	}
	var plans []store.Plan
	for _, d := range due.Schedules {
		n := due.Now.Sub(d.NextDueAt) / crashPeriod // ticks before the latest due one
		last := d.NextDueAt.Add(n * crashPeriod)
		plans = append(plans, store.Plan{Schedule: d, Handler: crashTicks.Handler, Last: last,
			Next: last.Add(crashPeriod), Skipped: int64(n), Runs: []store.NewRun{{Handler: crashTicks.Handler,
				Schedule: d.Name, DueAt: last, RunAt: last}}})
	}
	if _, err := s.Materialize(ctx, plans); err != nil {
		return err
	}
	claimed, err := s.Claim(ctx, store.ClaimRequest{Worker: name, Handlers: crashHandlers, Limit: 2,
		MaxActive: crashActive, TTL: crashLease})
	if err != nil {
		return err
	}
	var keys []store.RunKey
	var results []store.Result
	for _, r := range claimed.Runs {
		keys = append(keys, r.RunKey)
		result := store.Result{RunKey: r.RunKey, Outcome: store.OutcomeOK, State: store.StateSucceeded}
		switch {
		case r.Attempt == 1 && r.ID%3 == 0:
			result.Outcome, result.State = store.OutcomeFailed, store.StateQueued
		case r.Attempt == 1 && r.ID%3 == 1: // give the run back
			result.Outcome, result.State = store.OutcomeInterrupted, store.StateQueued
		}
		results = append(results, result)
	}
	if _, err := s.Renew(ctx, name, keys, crashLease); err != nil {
		return err
	}
	done, err := s.Finish(ctx, name, results)
	if err != nil {
		return err
	}
	for _, c := range done.Counted {
		fmt.Println("counted", c.ID, c.Attempt)
	}
	if _, err := s.Reclaim(ctx, 10, 0); err != nil {
		return err
	}
	if _, err := s.Stats(ctx, time.Minute); err != nil {
		return err
	}
	_, err = s.Sweep(ctx, store.Retention{Succeeded: time.Hour, Unseen: time.Hour}, 10)
	return err
}
