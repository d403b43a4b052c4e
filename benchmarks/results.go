package main

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

// short writes a number with four digits at most.
func short(x float64) string {
	switch a := math.Abs(x); {
	case math.IsNaN(x):
		return "–"
	case a >= 1000:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case a >= 100:
		return strconv.FormatFloat(x, 'f', 1, 64)
	default:
		return strconv.FormatFloat(x, 'g', 3, 64)
	}
}

func (s spread) String() string {
	return fmt.Sprintf("%s (%s..%s)", short(s.Median), short(s.Min), short(s.Max))
}

// rounded is fit for a line of JSON.
func (v Verdict) rounded() Verdict {
	for _, x := range []*float64{&v.Tickslot, &v.PeerValue, &v.Ratio, &v.Min, &v.Max, &v.Control} {
		if scale := math.Pow(10, 4-math.Ceil(math.Log10(math.Abs(*x)))); *x != 0 && !math.IsInf(scale, 0) {
			*x = math.Round(*x*scale) / scale
		}
	}
	return v
}

// table is the group in Markdown.
func (r Result) table() string {
	var b strings.Builder
	if r.Err != nil {
		return fmt.Sprintf("\n### %s\n\nIt failed: %v\n", r.Group.Name, r.Err)
	}
	fmt.Fprintf(&b, "\n### %s\n\n%s; the median of %d rounds (least..greatest).\n\n", r.Group.Name, r.Group.Unit,
		r.Rounds)
	columns := map[string]bool{}
	for _, f := range r.Figures {
		for key := range f.Extra {
			columns[key] = true
		}
	}
	var keys []string
	for key := range columns {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	fmt.Fprintf(&b, "| case | %s | ÷ tickslot |", r.Group.Unit)
	for _, key := range keys {
		fmt.Fprintf(&b, " %s |", key)
	}
	b.WriteString("\n|---|---|---|" + strings.Repeat("---|", len(keys)) + "\n")
	for _, f := range r.Figures {
		fmt.Fprintf(&b, "| %s | %v | %v |", f.Case, f.Value, f.Ratio)
		for _, key := range keys {
			if s, ok := f.Extra[key]; ok {
				fmt.Fprintf(&b, " %s |", short(s.Median))
			} else {
				b.WriteString(" |")
			}
		}
		b.WriteString("\n")
	}
	if !r.Group.NoControl {
		fmt.Fprintf(&b, "\nControl: tickslot beside itself is %v.", r.Control)
	}
	fmt.Fprintf(&b, "\nTook %v.\n", r.Took.Round(100*time.Millisecond))
	return b.String()
}

func (v Verdict) row() string {
	sign, met := "≥", "no"
	if v.Is == "at most" {
		sign = "≤"
	}
	if v.Met {
		met = "yes"
	}
	if v.Note != "" {
		met += ": " + v.Note
	}
	v = v.rounded()
	return fmt.Sprintf("| %s | %s %s | %s: %s | %s (%s..%s) | %s %s | %s | %s |\n", v.Case, short(v.Tickslot), v.Unit,
		v.Peer, short(v.PeerValue),
		short(v.Ratio), short(v.Min), short(v.Max), sign, short(v.Target), met, short(v.Control))
}

// settings of the rivals, as their documentation has them.
const settings = `
## Settings

- Every pool of connections to Redis has 64; go-redis otherwise has its defaults, for rivals. The leases of all are 15 s long.
- redsync: a ` + "`Mutex`" + ` per worker, kept; ` + "`TryLockContext`" + `, so that there is no retry.
- bsm/redislock: no retry strategy and no metadata.
- rueidislock: ` + "`KeyMajority: 1`" + ` (one server), ` + "`NoLoopTracking: true`" + `, ` + "`TryNextAfter`" + ` 1 s, as there is no next key.
- etcd: embedded, one member, fsync on; one session, ` + "`TryLock`" + `. It makes durable what Redis does not.
- asynq ` + "`x/rate`" + `: the newest version that the module proxy has, which insists on go-redis v8; its script with v9 stands beside it. A token is
  taken for a task, so a real asynq server lends the contexts of tasks.
- robfig/cron: its default chain (no wrappers), a schedule that delays by a period to the millisecond.
- gocron: its defaults, ` + "`DurationJob`" + `.
- naive loop: SET NX PX (Postgres: INSERT … ON CONFLICT … WHERE expired) for one slot after the other; the first ones are held, as it would hold them itself.
- tickslot: a ` + "`dlock.Session`" + `, with everything that it does, on a ` + "`redislock.Store`" + ` with ` + "`PoolSize: 64`" + `; schedulers with a handler that counts.
- Postgres: 16 workers and 16 connections on each side. tickslot has four stores of four, as on four hosts, and prepares nothing (so that any PgBouncer will do);
  the naive loop has one pool, and pgx' default, statements that are prepared once.
- Latency store by store: one caller, one of five slots with a tick; Redis keeps nothing on disk, Postgres writes each commit to it, MariaDB leaves
  that to the system, SQLite (synchronous=NORMAL) writes at its checkpoints. "10 ms away" is a proxy on this machine that delays every chunk by 5 ms in each direction.
- 64 due timers: the time until the last of 64 attempts that begin together has its answer, the median of the bursts of a window.
`

const about = `
All cases of a group are measured once per round, in rotated order, and a ratio is the median of the ratios within a round, with the
least and the greatest. "Control" is tickslot beside itself, which would be 1 without noise. Client and servers share the machine, so
round trips are cheaper here than over a network, and what saves them is understated. See doc.go.
`

func write(folder string, all []Result, l *lab, began time.Time) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Results\n\nWritten by `make bench` on %s, in %v. Ratios count; absolute figures are of this "+
		"machine.\n", began.UTC().Format("2006-01-02 15:04 UTC"), time.Since(began).Round(time.Second))
	if l.load > float64(runtime.NumCPU())/2 {
		fmt.Fprintf(&b, "\n**The machine was busy with something else: its load average was %.1f at the start. Take "+
			"no figure from here; run it again.**\n", l.load)
	}
	b.WriteString(about)
	b.WriteString("\n## Targets\n\n| what | tickslot | peer | ratio | target | met | control |\n" +
		"|---|---|---|---|---|---|---|\n")
	for _, r := range all {
		for _, v := range r.Verdicts {
			b.WriteString(v.row())
		}
	}
	plots, err := plot(folder, all)
	if err != nil {
		return err
	}
	if len(plots) > 0 {
		b.WriteString("\n## Plots\n\n")
	}
	for _, p := range plots {
		fmt.Fprintf(&b, "![%s](%s)\n\n", p.title, p.file)
	}
	b.WriteString("## Groups\n")
	for _, r := range all {
		b.WriteString(r.table())
	}
	b.WriteString(settings)
	b.WriteString("\n## Machine and versions\n\n")
	for _, line := range machine(l) {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	return os.WriteFile(filepath.Join(folder, "RESULTS.md"), []byte(b.String()), 0o644)
}

// rivals are the modules whose versions matter.
var rivals = []string{"github.com/redis/go-redis/v9", "github.com/go-redsync/redsync/v4", "github.com/bsm/redislock",
	"github.com/redis/rueidis", "github.com/hibiken/asynq",
	"github.com/hibiken/asynq/x", "github.com/go-redis/redis/v8", "github.com/go-co-op/gocron/v2",
	"github.com/robfig/cron/v3", "go.etcd.io/etcd/server/v3", "github.com/jackc/pgx/v5"}

func machine(l *lab) []string {
	list := []string{
		fmt.Sprintf("%d × %s, %s, load average %.1f at the start", runtime.NumCPU(),
			cmp.Or(field("/proc/cpuinfo", "model name"), runtime.GOARCH), cmp.Or(field("/proc/meminfo", "MemTotal"),
				"?"), l.load),
		fmt.Sprintf("%s/%s, %s, GOMAXPROCS %d", runtime.GOOS, runtime.GOARCH, runtime.Version(), runtime.GOMAXPROCS(0)),
	}
	if l.commit != "" {
		list = append(list, "tickslot "+l.commit)
	}
	if info, err := l.redis.admin.InfoMap(ctx, "server").Result(); err == nil {
		list = append(list, "Redis "+info["Server"]["redis_version"]+", without persistence")
	}
	var version string
	if err := l.postgres.admin.QueryRow(ctx, "SHOW server_version").Scan(&version); err == nil {
		list = append(list, "Postgres "+version+", fsync on")
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if slices.Contains(rivals, dep.Path) {
				list = append(list, dep.Path+" "+dep.Version)
			}
		}
	}
	return list
}

// field of a file of Linux'; "" elsewhere.
func field(file, name string) string {
	text, _ := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// load is the load average of the last minute; 0 where it is not known.
func commit() string {
	out, _ := exec.Command("git", "describe", "--always", "--dirty").Output()
	return strings.TrimSpace(string(out))
}

func load() float64 {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	n, _ := strconv.ParseFloat(first, 64)
	return n
}
