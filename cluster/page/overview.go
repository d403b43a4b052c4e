package page

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page/internal/pagekit"
	"github.com/tickslot/tickslot/internal/mask"
	"github.com/tickslot/tickslot/timer"
)

// An overview says first what needs attention.
type overview struct {
	seen
	Environment string                 `json:"environment,omitempty"`
	Notices     []Notice               `json:"attention"`
	More        int                    `json:"more_attention,omitempty"` // that are not shown
	Hosts       map[string]int         `json:"hosts"`                    // by state
	Timers      map[string]int         `json:"timers"`                   // by state
	Leases      int                    `json:"leases_held"`
	Leaders     []cluster.Lease        `json:"leaders"`
	Runs        []cluster.HistoryRun   `json:"runs"`   // latest
	Events      []cluster.HistoryEvent `json:"events"` // latest
}

const (
	maxNotices = 50
	maxLatest  = 10
)

func (p *Page) overview(ctx context.Context, _ url.Values) (Content, error) {
	var sections sync.WaitGroup // while the fleet is read
	notices := make([][]Notice, len(p.config.Sections))
	for i, s := range p.config.Sections {
		if s.Attention != nil {
			sections.Go(func() {
				defer func() {
					if r := recover(); r != nil {
						notices[i] = []Notice{{Urgent: true, Text: fmt.Sprintf("A section of this page panicked: %v",
							r)}}
					}
				}()
				notices[i] = s.Attention(ctx)
			})
		}
	}
	s := p.snapshot(ctx)
	rows, err := p.timers.pausedRows(ctx, s)
	v := overview{seen: seenOf(s, err), Environment: s.Self.Environment, Hosts: map[string]int{},
		Timers: map[string]int{}, Leaders: s.HeldLeases(cluster.KindLeader),
		Runs: s.Runs[:min(len(s.Runs), maxLatest)], Events: s.Events[:min(len(s.Events), maxLatest)]}
	for _, h := range s.Hosts {
		v.Hosts[string(h.State)]++
	}
	for _, r := range rows {
		v.Timers[string(r.State)]++
	}
	for _, l := range s.Leases {
		if l.State == cluster.LeaseHeld {
			v.Leases++
		}
	}
	v.Notices = append(storeNotices(s, err), append(hostNotices(s), timerNotices(rows)...)...)
	sections.Wait()
	v.Notices = append(v.Notices, slices.Concat(notices...)...)
	for i := range v.Notices {
		v.Notices[i].Text = mask.Text(v.Notices[i].Text)
	}
	slices.SortStableFunc(v.Notices, func(a, b Notice) int {
		switch {
		case a.Urgent == b.Urgent:
			return 0
		case a.Urgent:
			return -1
		default:
			return 1
		}
	})
	v.More = max(0, len(v.Notices)-maxNotices)
	v.Notices = v.Notices[:len(v.Notices)-v.More]
	if v.Notices == nil {
		v.Notices = []Notice{}
	}
	return Content{"Overview", v}, nil
}

// urgent and notable make notices of a format.
func urgent(url, format string, args ...any) Notice {
	return Notice{Urgent: true, URL: url, Text: fmt.Sprintf(format, args...)}
}

func notable(url, format string, args ...any) Notice {
	return Notice{URL: url, Text: fmt.Sprintf(format, args...)}
}

// storeNotices say that what is shown is old or not all. unknown is why some pauses are not known.
func storeNotices(s *cluster.Snapshot, unknown error) (list []Notice) {
	switch {
	case s.Err != nil && s.ReadAt.IsZero():
		list = append(list, urgent("", "A store did not answer, and nothing was read yet: %v", s.Err))
	case s.Err != nil:
		list = append(list, urgent("", "A store did not answer, so this is what it was %s: %v", ago(s.ReadAt), s.Err))
	}
	if unknown != nil {
		list = append(list, urgent("timers", "A store did not answer: %v", unknown))
	}
	if others := s.OtherEnvironments; len(others) > 0 {
		list = append(list, urgent("hosts", "Hosts of other environments share this registry: %s. Give each "+
			"environment a table or prefix of its own.", strings.Join(others, ", ")))
	}
	return list
}

// clockAlarm is how far a clock may be off before there is a notice about it.
const clockAlarm = time.Second

// hostNotices are about processes.
func hostNotices(s *cluster.Snapshot) (list []Notice) {
	versions := map[string]bool{}
	for _, h := range s.Hosts {
		link := URL("hosts", "q", h.Holder.String())
		switch {
		case h.State == cluster.HostSuspect:
			list = append(list, urgent(link, "%s is silent: its last heartbeat was %s.", h.Holder, ago(h.SeenAt)))
		case h.State == cluster.HostGone && !h.Left:
			list = append(list, urgent(link, "%s is gone without having stopped in good order: its last heartbeat was "+
				"%s.%s", h.Holder, ago(h.SeenAt), stillHeld(s, h)))
		case h.State == cluster.HostRefused:
			list = append(list, urgent(link, "%s is of environment %s and was refused: it takes no work. Its last "+
				"heartbeat was %s. Its log says what to do.", h.Holder, h.Environment, ago(h.SeenAt)))
		}
		if !h.State.Live() {
			continue
		}
		versions[h.AppVersion+" (tickslot "+h.Version+")"] = true
		if h.ClockOffset.Abs() > clockAlarm {
			list = append(list, notable(link, "The clock of %s is %s off the store's.", h.Holder, took(h.ClockOffset)))
		}
		for _, r := range h.Runners {
			if r.Err != "" || r.State == "stuck" {
				list = append(list, urgent(link, "%s on %s: %s: %s", strings.TrimSpace(r.Kind+" "+r.Name),
					h.Holder, r.State, r.Err))
			}
		}
	}
	if len(versions) > 1 {
		list = append(list, notable("hosts", "Hosts run %d different versions.", len(versions)))
	}
	return list
}

// stillHeld says what a host that is gone seems to hold.
func stillHeld(s *cluster.Snapshot, h cluster.Host) string {
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
	return fmt.Sprintf(" It still has %s, the last for another %s.", pagekit.Count(n, "lease"), left(last))
}

// timerNotices are about timers.
func timerNotices(rows []timerRow) (list []Notice) {
	for _, r := range rows {
		link, local := URL("timer", "name", r.Name), r.Local
		switch {
		case r.State == cluster.TimerPaused:
			text := "until its limit, which is 0, is changed"
			if until := r.Pause.Until; !until.IsZero() {
				text = "for another " + left(until)
			}
			list = append(list, notable(link, "%s is paused %s, %s.", r.Name, r.Pause.Cause, text))
		case late(local):
			list = append(list, urgent(link, "%s has not succeeded for %s: %s.", r.Name,
				pagekit.Count(local.TicksSinceSuccess, "tick"), r.whyNot()))
		case r.Failed >= cluster.FailingRuns:
			list = append(list, urgent(link, "%s is %s: %s.", r.Name, r.Failing(), r.whyNot()))
		}
		if len(r.Differ) > 0 {
			list = append(list, notable(link, "Hosts differ in the limit of %s: %s.", r.Name, r.differText()))
		}
		if local == nil {
			continue
		}
		if local.ScheduleError != "" {
			list = append(list, urgent(link, "%s has no next tick: %s", r.Name, local.ScheduleError))
		}
		if local.StoreFault != "" {
			list = append(list, urgent(link, "%s does not run: %s", r.Name, local.StoreFault))
		}
	}
	return list
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
func (t timerRow) whyNot() string {
	var why []string
	if t.Last != nil && !t.Last.Succeeded() {
		text := fmt.Sprintf("the latest ended %s on %s as %s", ago(t.Last.EndedAt), t.Last.Holder.Host, t.Last.Outcome)
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
			took(time.Since(oldest.AcquiredAt))))
	}
	if len(why) == 0 {
		return "no reason is known here"
	}
	return strings.Join(why, "; ")
}
