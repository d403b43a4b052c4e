package commands_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/redisregistry"
	"github.com/tickslot/tickslot/cluster/sqlregistry"
	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/redislock"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/schedule"
	"github.com/tickslot/tickslot/timer/control"
)

// refuses runs a command that must fail with exit code 1 and print all texts on one line.
func refuses(t *testing.T, url, command string, texts ...string) {
	t.Helper()
	a := tickslot(t, url, strings.Fields(command)...)
	if a.code != 1 || a.out != "" || strings.Count(a.err, "\n") != 1 {
		t.Errorf("%s: exit code %d: %s", command, a.code, a)
	}
	for _, text := range texts {
		if !strings.Contains(a.err, text) {
			t.Errorf("%s lacks %q:\n%s", command, text, a)
		}
	}
}

// accepts runs a command that must succeed without a warning.
func accepts(t *testing.T, url, command string, texts ...string) {
	t.Helper()
	a := tickslot(t, url, strings.Fields(command)...)
	if a.code != 0 || a.err != "" {
		t.Errorf("%s: exit code %d, or it warns: %s", command, a.code, a)
	}
	for _, text := range texts {
		if !strings.Contains(a.out, text) {
			t.Errorf("%s lacks %q:\n%s", command, text, a)
		}
	}
}

// A timer that neither the registry nor the store of the locks knows is not changed, and similar
// names are offered. A timer that only the registry knows is changed without a warning, because it
// has not run yet. The same holds for a timer that only the store knows, as in a fleet without
// package cluster.
//
// Fails when a change is made without a check, when only the registry or only the store is asked,
// or when a correct name causes a warning.
func TestMisspeltTimersAreNotChanged(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, redistest.Options{})
	client := server.Client()
	registry := redisregistry.New(client, redisregistry.Options{Prefix: "shop:"})
	locks := redislock.New(client, redislock.Options{Prefix: "shop:", NoQuarantine: true})
	t.Cleanup(func() { _, _, _ = registry.Close(), locks.Close(), client.Close() })
	ctl, url := control.New(control.Config{Store: locks}), server.URL()
	grant, err := locks.TryAcquire(t.Context(), driver.Request{Name: "timer:nightly", Slots: 1, TTL: 20 * time.Second,
		Token: "token-of-the-run", Holder: holder,
		Tick: &driver.Tick{At: time.Now(), Max: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := locks.Release(t.Context(), grant); err != nil {
		t.Fatal(err)
	}

	has(t, url, "--prefix shop: explain nightly", "nightly: unknown", "no process of this store uses package cluster")
	has(t, url, "--prefix nope: timers ls", "no timer is known",
		"no process of this store uses package cluster, so only "+
			"timers that hold a slot now are listed, or the hosts have another --prefix")
	if _, err := locks.TryAcquire(t.Context(), driver.Request{Name: "timer:poll", Slots: 1, TTL: 20 * time.Second,
		Token: "token-of-poll", Holder: holder}); err != nil {
		t.Fatal(err)
	}
	a := tickslot(t, url, "--prefix", "shop:", "timers", "ls")
	if !strings.Contains(a.out, "poll") || !strings.Contains(a.err, "only timers that hold a slot now are listed") {
		t.Errorf("what is not listed is not said: %s", a)
	}
	accepts(t, url, "--prefix shop: pause nightly", "paused until") // only the store knows it
	refuses(t, url, "--prefix shop: pause report", "no timer \"report\" is known", "package cluster", "--prefix")
	write(t, registry, cluster.Batch{Host: hostRow(holder, "1", "production", 1)})
	for _, command := range []string{"pause reprot", "resume reprot", "limit reprot 1", "limit reprot reset",
		"trigger reprot", "cancel reprot --slot 0", "explain reprot"} {
		refuses(t, url, "--prefix shop: "+command, `no timer "reprot" is known`, "did you mean report?")
	}
	refuses(t, url, "--prefix shop: pause zzzzzz", "no timer \"zzzzzz\" is known (--force")
	if s, err := ctl.Inspect(t.Context(), "reprot"); err != nil || s.Pause != nil || s.Limit != nil {
		t.Errorf("%+v, %v", s, err)
	}
	if waiting, err := ctl.Triggers(t.Context(), "reprot"); err != nil || len(waiting) > 0 {
		t.Errorf("%+v, %v", waiting, err)
	}
	accepts(t, url, "--prefix shop: timers ls", "report", "poll")
	accepts(t, url, "--prefix shop: trigger report", "triggered") // only the registry knows it
	has(t, url, "--prefix shop: pause later --force", "paused until")
	accepts(t, url, "--prefix shop: resume later", "resumed") // otherwise the pause could never be removed
	refuses(t, url, "--prefix shop: resume later", `no timer "later" is known`)
	has(t, url, "--prefix shop: trigger later --force", "triggered")
	has(t, url, "--prefix shop: explain later", "trigger by ")
}

// Names of handlers, schedules and topics are checked too.
//
// Fails when a misspelled name is accepted, or when a schedule counts as a handler.
func TestMisspeltHandlersAreNotChanged(t *testing.T) {
	t.Parallel()
	url, file := sqlite(t)
	db := open(t, file)
	store := durable.SQLite(db, durable.Options{})
	deadRun(t, store)
	deadMessage(t, db)
	worker, err := durable.NewWorker(store, durable.Config{})
	if err != nil {
		t.Fatal(err)
	}
	worker.Handle("mail", func(context.Context, *durable.Run) error { return nil }, durable.HandlerOptions{})
	worker.Schedule("month-end", "mail", schedule.Every(time.Hour), durable.ScheduleOptions{})
	until(t, worker.Run, func() bool {
		list, err := store.Schedules(t.Context())
		return err == nil && len(list) == 1
	})
	write(t, sqlregistry.SQLite(db, sqlregistry.Options{}), cluster.Batch{Host: hostRow(holder, "1", "", 1)})
	for _, command := range []string{"pause mial --durable", "resume mial --durable", "limit mial 2 --durable",
		"trigger mial --durable", "requeue durable --handler mial"} {
		refuses(t, url, command, `no handler of durable runs "mial" is known`, "did you mean mail?")
	}
	refuses(t, url, "pause month-end --durable", `is a schedule, of handler "mail"`, "--schedule")
	refuses(t, url, "pause month-edn --schedule", `no schedule "month-edn" is known`, "did you mean month-end?")
	refuses(t, url, "requeue outbox --topic order", `no dead message of topic "order" is known`,
		"did you mean orders?")
	handlers, err := store.Handlers(t.Context())
	if err != nil || len(handlers) > 2 { // mail, and the record for all handlers
		t.Errorf("%+v, %v", handlers, err)
	}
	accepts(t, url, "pause mail --durable --for 2h", "paused until")
	accepts(t, url, "pause month-end --schedule --for 2h", "schedule month-end: paused until")
	has(t, url, "durable schedules", "month-end", "paused")
	accepts(t, url, "resume month-end --schedule", "schedule month-end: resumed")
	has(t, url, "trigger later --durable --force", "queued run ")
}
