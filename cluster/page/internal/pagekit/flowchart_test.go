package pagekit_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster/page/internal/pagekit"
)

// What waited at the end of an interval is what waits now, less what came since, plus what left
// since. Counts from before counting began, and after it ended, are left out, and columns without
// counts are drawn with what waited then.
//
// Fails when the backlog is computed from the oldest interval on, when an interval is one off, and
// when what is not known is drawn.
func TestBacklogIsComputedFromNowBackwards(t *testing.T) {
	t.Parallel()
	until := time.Date(2026, 11, 30, 14, 3, 0, 0, time.UTC)
	at := func(minute int) time.Time { return time.Date(2026, 11, 30, 13, minute, 0, 0, time.UTC) }
	f := pagekit.FlowChart{Entries: "runs", Came: "queued", Waits: "waiting", Waiting: 4}
	counts := []pagekit.FlowCount{{at(20), 99, 0}, {at(45), 10, 2}, {at(50), 0, 8}, {at(60), 5, 1}, {at(65), 7, 7}}
	span := pagekit.FlowSpan{From: at(40), Until: until, Interval: 5 * time.Minute, Length: time.Hour}
	f.Draw(counts, span)
	var tips []string
	for _, tip := range append(f.Backlog.Tips, f.Rates.Tips...) {
		tips = append(tips, tip.Text)
	}
	// 13:40 is column 7 of 12, and 14:00 the last one.
	want := []string{"30 Nov 13:45 UTC: 8 waiting at the end", "30 Nov 14:00 UTC: 4 waiting at the end",
		"30 Nov 13:45 UTC: 10 queued, 2 ended", "30 Nov 13:50 UTC: 0 queued, 8 ended",
		"30 Nov 14:00 UTC: 5 queued, 1 ended"}
	if got := strings.Join(tips, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	if f.In != 15 || f.Out != 11 || !f.Cut || f.Within != "23 min" || f.Backlog.Top != "8" ||
		f.Rates.Top != "10 in 5 min" || f.Backlog.Columns != 12 ||
		f.Backlog.Layers[0].Path != "M8 80v-80h1v80zM11 80v-40h1v40z" ||
		f.Rates.Layers[0].Path != "M8 40v-40h1v40zM11 40v-20h1v20z" ||
		f.Rates.Layers[1].Path != "M8 40v8h1v-8zM9 40v32h1v-32zM11 40v4h1v-4z" {
		t.Errorf("%+v", f)
	}
	unknown := pagekit.FlowChart{Entries: "runs", Came: "queued", Waits: "waiting", Waiting: -1}
	unknown.Draw(counts, span)
	if unknown.Backlog.Columns != 0 || unknown.In != 15 {
		t.Errorf("%+v", unknown)
	}
	span.From = at(8) // the first of all columns
	f = pagekit.FlowChart{Entries: "runs", Waiting: 0}
	f.Draw(nil, span)
	if f.Cut || len(f.Backlog.Tips)+len(f.Rates.Tips) != 0 || f.Rates.Layers[0].Path != "" {
		t.Errorf("%+v", f)
	}
}
