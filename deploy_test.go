package tickslot_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/lockmetrics"
	"github.com/tickslot/tickslot/dlock/memlock"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/leader"
	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/timer"
)

// A gathering keeps the registered collectors.
type gathering struct{ all []prometheus.Collector }

func (g *gathering) Register(c prometheus.Collector) error  { g.all = append(g.all, c); return nil }
func (g *gathering) MustRegister(c ...prometheus.Collector) { g.all = append(g.all, c...) }
func (g *gathering) Unregister(prometheus.Collector) bool   { return true }

// metrics returns the names of all metrics of all packages.
func metrics(t *testing.T) map[string]bool {
	t.Helper()
	g := &gathering{all: []prometheus.Collector{lockmetrics.New(lockmetrics.Options{})}}
	session, err := dlock.NewSession(memlock.New(), dlock.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := leader.New(session, leader.Role{Name: "a", Registerer: g,
		Run: func(context.Context, *leader.Term) error { return nil }}); err != nil {
		t.Fatal(err)
	}
	if _, err := timer.New(timer.Config{Store: memlock.New(), Registerer: g,
		Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.New(cluster.Config{Store: cluster.NewMemoryStore(), Registerer: g}); err != nil {
		t.Fatal(err)
	}
	none := new(sql.DB) // never used
	if _, err := durable.NewWorker(durable.SQLite(none, durable.Options{}),
		durable.Config{Registerer: g, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	if _, err := outbox.NewRelay(outbox.SQLite(none, outbox.Options{}), outbox.RelayConfig{Registerer: g,
		DefaultSink: outbox.SinkFunc(func(context.Context, outbox.Delivery) error { return nil }),
		Logger:      slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	described := make(chan *prometheus.Desc, 1000)
	for _, c := range g.all {
		c.Describe(described)
	}
	close(described)
	names := map[string]bool{}
	for d := range described {
		_, rest, _ := strings.Cut(d.String(), `fqName: "`)
		name, _, _ := strings.Cut(rest, `"`)
		names[name] = true
	}
	if len(names) < 40 {
		t.Fatalf("%d metrics are known: %v", len(names), names)
	}
	return names
}

var metricName = regexp.MustCompile(`\btickslot_[a-z_]+\b`)

// Alerts, dashboard and documentation use only existing metrics, and every metric is documented.
//
// Fails when a metric is renamed in the code only.
func TestMetricsInDeployExist(t *testing.T) {
	t.Parallel()
	names := metrics(t)
	for _, path := range []string{"deploy/prometheus/tickslot.rules.yml", "deploy/grafana/tickslot.json",
		"docs/metrics.md"} {
		found := metricName.FindAllString(read(t, path), -1)
		if len(found) < 10 {
			t.Errorf("%s names %d metrics", path, len(found))
		}
		for _, name := range found {
			if !names[name] && !names[strings.TrimSuffix(name, "_bucket")] {
				t.Errorf("%s: there is no metric %s", path, name)
			}
		}
	}
	doc := read(t, "docs/metrics.md")
	for name := range names {
		if !strings.Contains(doc, "`"+name+"`") {
			t.Errorf("docs/metrics.md does not have %s", name)
		}
	}
}

// A dashboard has the fields of a Grafana dashboard that the tests use.
type dashboard struct {
	Templating struct{ List []struct{ Name string } }
	Panels     []panel
}

type panel struct {
	ID          int
	GridPos     struct{ H, W, X, Y int }
	Type, Title string
	Description string
	Targets     []target
}

type target struct{ Expr string }

// asked returns the query for an environment. All other variables match everything.
func (t target) asked(environment string) string {
	expr := strings.NewReplacer("$__rate_interval", "20s", "$environment", environment).Replace(t.Expr)
	return regexp.MustCompile(`\$[a-z]+`).ReplaceAllString(expr, ".*")
}

// The dashboard's queries are valid PromQL. Panels have unique IDs, do not overlap, and have titles
// and descriptions. The dashboard covers leaders, the registry, durable runs and the outbox, and
// each query filters by the selected service and environment.
//
// Fails when a query lacks a bracket, two panels overlap, or a query adds up environments.
func TestDashboard(t *testing.T) {
	t.Parallel()
	promtool := findPromtool(t)
	var d dashboard
	if err := json.Unmarshal([]byte(read(t, "deploy/grafana/tickslot.json")), &d); err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	rules := "groups:\n- name: panels\n  rules:\n" // recording rules, because promtool can check those
	queries := 0
	shown := map[string]bool{}
	var chosen []string // the label matchers that each metric must have
	for _, v := range d.Templating.List {
		if v.Name != "datasource" && v.Name != "timer" {
			chosen = append(chosen, v.Name+`=~"$`+v.Name+`"`)
		}
	}
	if want := "job namespace environment instance"; len(chosen) != len(strings.Fields(want)) {
		t.Errorf("it has variables for %v, want %s", chosen, want)
	}
	aggregation := regexp.MustCompile(`\b(?:sum|max|min|count)\b(?: by \(job, namespace, environment[,)])?`)
	type place struct{ x, y int }
	taken := map[place]string{}
	for _, p := range d.Panels {
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, is := taken[place{x, y}]; is || x >= 24 {
					t.Fatalf("%q is over %q, or too wide", p.Title, other)
				}
				taken[place{x, y}] = p.Title
			}
		}
		if seen[p.ID] || p.Title == "" || p.Type != "row" && (p.Description == "" || len(p.Targets) == 0) {
			t.Errorf("%+v", p)
		}
		seen[p.ID] = true
		for _, target := range p.Targets {
			for _, name := range metricName.FindAllString(target.Expr, -1) {
				shown[name] = true
				if !strings.Contains(target.Expr, name+"{"+strings.Join(chosen, ",")) {
					t.Errorf("%q: %s is of all: it wants %v", p.Title, name, chosen)
				}
			}
			for _, by := range aggregation.FindAllString(target.Expr, -1) {
				if !strings.Contains(by, " by ") {
					t.Errorf("%q adds up environments: %s", p.Title, target.Expr)
				}
			}
			rules += fmt.Sprintf("  - {record: 'panel:%d', expr: %q}\n", queries, target.asked("production"))
			queries++
		}
	}
	for _, name := range []string{"tickslot_leader_leading", "tickslot_leader_unhealthy", "tickslot_cluster_hosts",
		"tickslot_cluster_timer_hosts", "tickslot_cluster_failing", "tickslot_alarm_active",
		"tickslot_durable_runs", "tickslot_durable_oldest_due_age_seconds", "tickslot_durable_attempts_total",
		"tickslot_outbox_pending", "tickslot_outbox_oldest_due_seconds", "tickslot_outbox_attempts_total"} {
		if !shown[name] {
			t.Errorf("no panel shows %s", name)
		}
	}
	path := filepath.Join(t.TempDir(), "panels.yml")
	if err := os.WriteFile(path, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(promtool, "check", "rules", path).CombinedOutput(); err != nil || queries < 20 {
		t.Errorf("%d queries: %v\n%s", queries, err, out)
	}
}

// Prometheus accepts the alert rules. Each alert is silent while all is well, fires once for a
// fault in one of two environments, and has a section in the runbook.
//
// Fails when only the rules change a threshold, a label or a text, when environments are mixed, or
// when an alert has no test or no section in the runbook.
func TestAlerts(t *testing.T) {
	t.Parallel()
	promtool := findPromtool(t)
	rules, runbook := read(t, "deploy/prometheus/tickslot.rules.yml"), read(t, "docs/runbook.md")
	tests := read(t, "deploy/prometheus/tickslot.rules_test.yml")
	alerts := regexp.MustCompile(`(?m)^ +- alert: (\w+)\n`).FindAllStringSubmatch(rules, -1)
	_, well, _ := strings.Cut(tests, "name: all is well\n")
	well, _, _ = strings.Cut(well, "\n\n")
	for _, a := range alerts {
		name := a[1]
		if !strings.Contains(well, "alertname: "+name+" }") ||
			!strings.Contains(tests, "\n        alertname: "+name+"\n        exp_alerts:\n") {
			t.Errorf("%s has no test in which it is raised, and none in which all is well", name)
		}
		url := "runbook_url: https://github.com/tickslot/tickslot/blob/main/docs/runbook.md#" + strings.ToLower(name)
		if !strings.Contains(runbook, "\n### "+name+"\n") || strings.Count(rules, url+"\n") != 1 {
			t.Errorf("%s has no part of the runbook, or does not lead there", name)
		}
	}
	if n := strings.Count(runbook, "\n### Tickslot"); n != len(alerts) || n < 20 {
		t.Errorf("%d alerts, and %d in the runbook", len(alerts), n)
	}
	for _, by := range regexp.MustCompile(`\bby \([^)]*\)?`).FindAllString(rules, -1) {
		if !strings.HasPrefix(by, "by (job, namespace, environment") {
			t.Errorf("%q mixes environments", by)
		}
	}
	for _, args := range [][]string{{"check", "rules", "tickslot.rules.yml"},
		{"test", "rules", "tickslot.rules_test.yml"}} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = "deploy/prometheus"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

func findPromtool(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("promtool")
	servertest.Require(t, err, "promtool comes with Prometheus")
	return path
}
