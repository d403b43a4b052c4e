package page

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page/internal/pagekit"
	"github.com/tickslot/tickslot/timer"
)

// An overview says first what needs attention.
type overview struct {
	pagekit.Seen
	Environment string                 `json:"environment,omitempty"`
	Notices     []Notice               `json:"attention"`
	More        int                    `json:"more_attention,omitempty"` // that are not shown
	Hosts       map[string]int         `json:"hosts"`                    // by state
	Timers      map[string]int         `json:"timers"`                   // by state
	Leases      int                    `json:"leases_held"`
	Leaders     []cluster.Lease        `json:"leaders"`
	Runs        []cluster.HistoryRun   `json:"runs"`   // latest
	Events      []cluster.HistoryEvent `json:"events"` // latest
	Problems    []problem              `json:"-"`
	Urgent      []Notice               `json:"-"` // for which no card stands
	Notes       []Notice               `json:"-"` // that are not urgent
	Unsaid      int                    `json:"-"` // that are neither among these nor on a card
	Longest     []timerRow             `json:"-"` // timers whose runs go on for longest
	Outage      bool                   `json:"-"` // it is said above the page
	Chart       runChart               `json:"-"` // of all timers
	Control     bool                   `json:"-"`
}

const (
	maxNotices = 50
	maxLatest  = 10
)

func (p *Page) overview(ctx context.Context, q url.Values) (Content, error) {
	p.timers.buckets.Begin("", p.readBuckets(""))
	r := p.read(ctx)
	v := overview{Seen: seenOf(r.Snapshot, r.unknown), Environment: r.Self.Environment, Hosts: map[string]int{},
		Timers: map[string]int{}, Leaders: ended(r.HeldLeases(cluster.KindLeader)),
		Runs: r.Runs[:min(len(r.Runs), maxLatest)], Events: r.Events[:min(len(r.Events), maxLatest)],
		Longest: longest(r.rows), Outage: r.outage != nil, Control: p.config.Control != nil}
	for _, h := range r.Snapshot.Hosts {
		v.Hosts[string(h.State)]++
	}
	for _, row := range r.rows {
		v.Timers[string(row.State)]++
	}
	for _, l := range r.Leases {
		if l.State == cluster.LeaseHeld {
			v.Leases++
		}
	}
	v.More = max(0, len(r.notices)-maxNotices)
	v.Notices = r.notices[:len(r.notices)-v.More]
	if v.Notices == nil {
		v.Notices = []Notice{}
	}
	v.addProblems(r)
	v.Chart = p.chart(ctx, q, "")
	return Content{"Overview", v}, nil
}

// addProblems adds the notices as the page shows them: cards, then lists.
func (o *overview) addProblems(r *reading) {
	o.Problems = problemsOf(r)
	for _, p := range o.Problems[min(len(o.Problems), maxNotices):] {
		o.Unsaid += 1 + p.More
	}
	o.Problems = o.Problems[:min(len(o.Problems), maxNotices)]
	rest := r.notices
	if o.Outage {
		rest = rest[1:]
	}
	for _, n := range rest {
		switch {
		case n.card:
		case len(o.Urgent)+len(o.Notes) == maxNotices:
			o.Unsaid++
		case n.Urgent:
			o.Urgent = append(o.Urgent, n)
		default:
			o.Notes = append(o.Notes, n)
		}
	}
}

// urgent and notable make notices of a format.
func urgent(url, format string, args ...any) Notice {
	return Notice{Urgent: true, URL: url, Text: fmt.Sprintf(format, args...)}
}

func notable(url, format string, args ...any) Notice {
	return Notice{URL: url, Text: fmt.Sprintf(format, args...)}
}

// storeNotices say that what is shown is not all. What an outage explains is not said again.
func (r *reading) storeNotices() (list []Notice) {
	switch {
	case r.outage != nil:
	case r.Err != nil:
		list = append(list, urgent("", "Some of this is missing: %s.", pagekit.Plain(r.Err.Error())))
	case r.unknown != nil:
		list = append(list, urgent("timers", "A store did not answer: %v", r.unknown))
	}
	if others := r.OtherEnvironments; len(others) > 0 {
		list = append(list, urgent("hosts", "Hosts of other environments share this registry: %s%s. Give each "+
			"environment a table or prefix of its own.", strings.Join(others, ", "), r.strangersSince(others)))
	}
	return list
}

// strangersSince says when the first host of these environments started.
func (r *reading) strangersSince(environments []string) string {
	var first time.Time
	for _, h := range r.Snapshot.Hosts {
		if h.State.Live() && slices.Contains(environments, h.Environment) &&
			(first.IsZero() || h.StartedAt.Before(first)) {
			first = h.StartedAt
		}
	}
	if first.IsZero() {
		return ""
	}
	return ", the first since " + strings.TrimSuffix(r.clock().ago(first), " ago")
}

// storeLoops are the kinds of loops that fail because a store does not answer.
var storeLoops = []string{"prober", "heartbeat", "registry"}

// clockAlarm is how far a clock may be off before there is a notice about it.
const clockAlarm = time.Second

// hostNotices are about processes.
func (r *reading) hostNotices(c *clock) (list []Notice) {
	s := r.Snapshot
	versions := map[string]bool{}
	for _, h := range s.Hosts {
		link := URL("hosts", "q", h.Holder.String())
		switch {
		case h.State == cluster.HostSuspect:
			list = append(list, urgent(link, "%s is silent: its last heartbeat was %s. It hangs, or does not reach "+
				"the store: look at its log, and restart it if it stays silent.", h.Holder, c.ago(h.SeenAt)))
		case h.State == cluster.HostGone && !h.Left:
			list = append(list, urgent(link, "%s is gone without having stopped in good order: its last heartbeat was "+
				"%s.%s It was killed, or is cut off from the store: start it again if nothing has.", h.Holder,
				c.ago(h.SeenAt), stillHeld(s, h, c)))
		case h.State == cluster.HostRefused:
			list = append(list, urgent(link, "%s is of environment %s and was refused: it takes no work. It started "+
				"%s. Give its environment a store or prefix of its own.", h.Holder, h.Environment, c.ago(h.StartedAt)))
		}
		if !h.State.Live() {
			continue
		}
		versions[h.AppVersion+" (tickslot "+h.Version+")"] = true
		if h.ClockOffset.Abs() > clockAlarm {
			list = append(list, notable(link, "The clock of %s is %s off the store's, as of its last heartbeat %s: "+
				"set it, by NTP for instance.", h.Holder, pagekit.Took(h.ClockOffset), c.ago(h.SeenAt)))
		}
		for _, loop := range h.Runners {
			if r.outage != nil && slices.Contains(storeLoops, loop.Kind) {
				continue
			}
			if loop.Err != "" || loop.State == "stuck" {
				list = append(list, urgent(link, "%s", loopText(h, loop, c)))
			}
		}
	}
	if len(versions) > 1 {
		list = append(list, notable("hosts", "Hosts run %d different versions.", len(versions)))
	}
	return list
}

// loopText says what is wrong with a loop of a host, for how long, and what to do about it.
func loopText(h cluster.Host, loop cluster.RunnerDetail, c *clock) string {
	name, state := strings.TrimSpace(loop.Kind+" "+loop.Name), loop.State
	if !loop.ChangedAt.IsZero() {
		state += " for " + pagekit.Took(max(0, c.since(loop.ChangedAt)))
	}
	todo := "its log says more."
	if slices.Contains(storeLoops, loop.Kind) {
		todo = "check the way from that host to the store."
	}
	return fmt.Sprintf("%s on %s: %s: %s: %s", name, h.Holder, state, strings.TrimRight(loop.Err, ". "), todo)
}

// stillHeld says what a host that is gone seems to hold.
func stillHeld(s *cluster.Snapshot, h cluster.Host, c *clock) string {
	n, last := 0, time.Time{}
	for _, l := range s.Leases {
		if l.State == cluster.LeaseHeld && l.Holder == h.Holder {
			n++
			if l.ExpiresAt.After(last) {
				last = l.ExpiresAt
			}
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" It still has %s, the last for another %s.", pagekit.Count(n, "lease"), c.left(last))
}

// timerNotices are about timers. outage: their store does not answer.
func timerNotices(s *cluster.Snapshot, rows []timerRow, outage bool, c *clock) (list []Notice) {
	newest := newestText(s, c)
	for _, r := range rows {
		link, local := URL("timer", "name", r.Name), r.Local
		switch {
		case r.State == cluster.TimerPaused:
			text := "until its limit, which is 0, is changed"
			if until := r.Pause.Until; !until.IsZero() {
				text = "for another " + c.left(until)
			}
			list = append(list, notable(link, "%s is paused %s, %s.", r.Name, r.Pause.Cause, text))
		default:
			if text := r.failingText(outage, c); text != "" {
				n := urgent(link, "%s", text)
				n.card = true
				list = append(list, n)
			}
		}
		if len(r.Differ) > 0 {
			list = append(list, notable(link, "Hosts differ in the limit of %s: %s. %sFinish the deploy, or set one "+
				"limit for all hosts.", r.Name, r.differText(), newest))
		}
		if local == nil {
			continue
		}
		if local.ScheduleError != "" {
			list = append(list, urgent(link, "%s has no next tick: its schedule fails: %s. %s Fix the schedule: it is "+
				"asked again after a minute, then less often.", r.Name, strings.TrimRight(local.ScheduleError, ". "),
				lastStart(local, c)))
		}
		if local.StoreFault != "" {
			list = append(list, urgent(link, "%s does not run: %s", r.Name, local.StoreFault))
		}
	}
	return list
}

// newestText says which host started last: since then hosts may differ.
func newestText(s *cluster.Snapshot, c *clock) string {
	var newest *cluster.Host
	for i := range s.Hosts {
		if h := &s.Hosts[i]; h.State.Live() && (newest == nil || h.StartedAt.After(newest.StartedAt)) {
			newest = h
		}
	}
	if newest == nil {
		return ""
	}
	return fmt.Sprintf("The newest, %s, started %s. ", newest.Holder.Host, c.ago(newest.StartedAt))
}

// lastStart says when a timer last started a run here.
func lastStart(t *timer.TimerStatus, c *clock) string {
	if t.LastRunAt.IsZero() {
		return "No run has started on this host."
	}
	return "Its last run on this host started " + c.ago(t.LastRunAt) + "."
}

// differText says which limits hosts have.
func (t timerRow) differText() string {
	var texts []string
	for _, d := range t.Differ {
		limit := "no limit"
		if d.Limit >= 0 {
			limit = fmt.Sprint(d.Limit)
		}
		texts = append(texts, fmt.Sprintf("%s on %d", limit, d.Hosts))
	}
	return strings.Join(texts, ", ")
}

// whyNot says why a timer does not succeed: how its last run ended, what keeps ticks from starting,
// and who has had a slot for longest.
func (t timerRow) whyNot(c *clock) string {
	var why []string
	if t.Last != nil && !t.Last.Succeeded() {
		text := fmt.Sprintf("the latest ended %s on %s as %s", c.ago(t.Last.EndedAt), t.Last.Holder.Host,
			t.Last.Outcome)
		if t.Last.Err != "" {
			text += ": " + t.Last.Err
		}
		why = append(why, text)
	}
	for _, s := range t.Skipped() {
		if s.Reason != string(timer.ReasonTickTaken) { // then another host ran it
			why = append(why, fmt.Sprintf("%s skipped here: %s", pagekit.Count(int(s.Count), "tick"), s.Reason))
			break
		}
	}
	var oldest *cluster.Lease
	for _, box := range t.Slots {
		if box.Lease != nil && (oldest == nil || box.Lease.AcquiredAt.Before(oldest.AcquiredAt)) {
			oldest = box.Lease
		}
	}
	if oldest != nil {
		why = append(why, fmt.Sprintf("slot %d is held by %s, for %s", oldest.Slot, oldest.Holder.Host,
			pagekit.Took(c.since(oldest.AcquiredAt))))
	}
	if len(why) == 0 {
		return "no reason is known here"
	}
	return strings.Join(why, "; ")
}
