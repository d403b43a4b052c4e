package main

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

// short formats a number with at most four digits.
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

// rounded rounds the verdict for a line of JSON.
func (v Verdict) rounded() Verdict {
	for _, x := range []*float64{&v.Tickslot, &v.PeerValue, &v.Ratio, &v.Min, &v.Max, &v.Control} {
		if scale := math.Pow(10, 4-math.Ceil(math.Log10(math.Abs(*x)))); *x != 0 && !math.IsInf(scale, 0) {
			*x = math.Round(*x*scale) / scale
		}
	}
	return v
}

// table returns the group as Markdown.
func (r Result) table() string {
	var b strings.Builder
	if r.Err != nil {
		return fmt.Sprintf("\n#### %s\n\nIt failed: %v\n", r.Group.Name, r.Err)
	}
	fmt.Fprintf(&b, "\n#### %s\n\n%s; the median of %d rounds (least..greatest).\n\n", r.Group.Name, r.Group.Unit,
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
	target := sign + " " + short(v.Target)
	if v.Target == 0 {
		target, met = "none", "–"
	}
	v = v.rounded()
	return fmt.Sprintf("| %s | %s %s | %s: %s | %s (%s..%s) | %s | %s | %s |\n", v.Case, short(v.Tickslot), v.Unit,
		v.Peer, short(v.PeerValue),
		short(v.Ratio), short(v.Min), short(v.Max), target, met, short(v.Control))
}

const about = `
Written by ` + "`make bench WHAT=all`" + `, and the parts about durable runs and the outbox alone by ` + "`make bench WHAT=durable`" + ` and ` + "`make bench WHAT=outbox`" + `.
Ratios count; absolute figures are of the machine that is named at the end of each part.

All cases of a group are measured once per round, in rotated order, and a ratio is the median of the ratios within a round, with the
least and the greatest. "Control" is tickslot beside itself, which would be 1 without noise. Client and servers share the machine, so
round trips are cheaper here than over a network, and what saves them is understated. See doc.go.
`

// warning returns a warning if the machine was busy, or "".
func (l *lab) warning() string {
	if l.load <= float64(runtime.NumCPU())/2 {
		return ""
	}
	return fmt.Sprintf("\n**The machine was busy with something else: its load average was %.1f at the start. Take "+
		"no figure from here; run it again.**\n", l.load)
}

// rivals are the modules whose versions are reported.
var rivals = []string{"github.com/redis/go-redis/v9", "github.com/go-redsync/redsync/v4", "github.com/bsm/redislock",
	"github.com/redis/rueidis", "github.com/hibiken/asynq",
	"github.com/hibiken/asynq/x", "github.com/riverqueue/river", "github.com/go-redis/redis/v8",
	"github.com/go-co-op/gocron/v2",
	"github.com/ThreeDotsLabs/watermill-sql/v4", "github.com/ThreeDotsLabs/watermill",
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

// field returns a field of a Linux file, or "" elsewhere.
func field(file, name string) string {
	text, _ := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func commit() string {
	out, _ := exec.Command("git", "describe", "--always", "--dirty").Output()
	return strings.TrimSpace(string(out))
}

// load returns the load average of the last minute, or 0 if unknown.
func load() float64 {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	n, _ := strconv.ParseFloat(first, 64)
	return n
}
