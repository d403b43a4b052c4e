package commands_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/sqlregistry"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/durable"
	"github.com/tickslot/tickslot/internal/inert"
)

// Every list is available in each format, and so are explain and doctor. JSON and YAML can be
// parsed and contain the same data, and untrusted names cannot control a terminal in any format.
//
// Fails when a list prints a text unescaped, has no data for programs, or prints null instead of an
// empty list.
func TestEveryListInEachFormat(t *testing.T) {
	t.Parallel()
	const hostile = "<script>\"'\x1b]0;owned\x07\u202e\n\t`"
	url, file := sqlite(t)
	empty, _ := sqlite(t)
	db := open(t, file)
	deadRun(t, durable.SQLite(db, durable.Options{}))
	deadMessage(t, db)
	h := dlock.Holder{Host: "web-1 " + hostile, PID: 7, ID: "abc"}
	row := hostRow(h, "1.2 "+hostile, hostile, 1, cluster.RunnerDetail{Kind: "leader", Name: hostile, Err: hostile})
	detail, err := json.Marshal(cluster.HostDetail{Timers: []cluster.TimerDetail{{Name: "report" + hostile,
		MaxConcurrency: 1}}, Runners: []cluster.RunnerDetail{{Kind: hostile, Name: hostile, Err: hostile}}})
	if err != nil {
		t.Fatal(err)
	}
	row.Detail = detail
	write(t, sqlregistry.SQLite(db, sqlregistry.Options{}), cluster.Batch{Host: row,
		Leases: []cluster.LeaseRecord{{Name: "timer:report" + hostile, Kind: cluster.KindTimer, Slots: 1, Holder: h,
			Fence: 1, ExpiresIn: time.Hour}, {Name: "leader:" + hostile, Kind: cluster.KindLeader, Holder: h,
			Fence: 1, ExpiresIn: time.Hour}},
		Runs:   []cluster.Run{{ID: "r", Timer: hostile, Holder: h, Outcome: "error", Err: hostile, By: hostile}},
		Events: []cluster.Event{{ID: "e", Kind: cluster.EventOperator, Name: hostile, Holder: h, Text: hostile}}})
	has(t, url, "pause report --for 1h --by ann --force")
	for _, command := range []string{"timers ls", "hosts ls", "slots ls", "leases ls", "leaders ls", "runs ls",
		"durable ls", "durable handlers", "durable schedules", "dead ls", "outbox ls", "outbox topics", "events ls",
		"explain report",
		"doctor --calls 1"} {
		read := map[string]any{}
		for _, format := range []string{"table", "wide", "json", "yaml"} {
			a := tickslot(t, url, append(strings.Fields(command), "-o", format)...)
			if a.code != 0 && !strings.HasPrefix(command, "doctor") {
				t.Errorf("%s -o %s: exit code %d: %s", command, format, a.code, a)
			}
			for _, r := range a.String() {
				if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
					t.Errorf("%s -o %s has %U: %q", command, format, r, a)
					break
				}
			}
			var err error
			var data any
			switch format {
			case "json":
				err = json.Unmarshal([]byte(a.out), &data)
			case "yaml":
				err = yaml.Unmarshal([]byte(a.out), &data)
			default:
				continue
			}
			if err != nil || data == nil {
				t.Errorf("%s -o %s: %v: %s", command, format, err, a)
			}
			read[format] = data
			if strings.HasSuffix(command, "ls") && strings.TrimSpace(a.out) == "[]" {
				t.Errorf("%s -o %s is empty", command, format)
			}
		}
		a := tickslot(t, empty, append(strings.Fields(command), "-o", "json")...)
		if strings.Contains(a.out, "null") {
			t.Errorf("%s of nothing: %s", command, a)
		}
		if x, y := len(fmt.Sprint(read["json"])), len(fmt.Sprint(read["yaml"])); x/2 > y || y/2 > x {
			t.Errorf("%s: JSON and YAML do not say the same: %v, %v", command, read["json"], read["yaml"])
		}
	}
	for _, text := range []string{hostile, inert.Text(hostile)} { // a name in an argument is untrusted, too
		for _, r := range tickslot(t, url, "explain", text).String() {
			if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
				t.Errorf("%U is told of a name that is not known", r)
			}
		}
	}
}
