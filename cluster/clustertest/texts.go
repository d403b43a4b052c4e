package clustertest

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/dlock"
)

// bad holds texts that tend to break stores.
var bad = []string{
	`it's "quoted"; DROP TABLE hosts; -- \ % _ $1 ? {braces}`,
	"four bytes 🦊🐙 and three 漢字",
	"\u202eright to left, e\u0301 of two runes",
	strings.Repeat("x", 200),
	strings.Repeat("🦊", 50),
	"tab\tline\r\nbell\a escape\x1b delete\x7f",
	" spaces around ",
	"null", "", "0x41", "1e3", "[]", "{}",
	"nul\x00inside",
	"\x00",
	"not UTF-8 \xff\xfe, cut 漢\xe6\xbc",
	"\xf0\x9f\xa6",
	"surrogate \xed\xa0\xbd\xed\xb8\x80",
}

var texts = []promise{
	{"texts/of any kind come back", func(c *check) {
		for i, text := range bad {
			id := fmt.Sprint(i)
			h := heartbeat("h" + id + text)
			h.Holder.ID, h.Environment, h.AppVersion, h.Version = id+text, text, text, text
			h.Detail, _ = json.Marshal(cluster.HostDetail{Runners: []cluster.RunnerDetail{
				{Kind: text, Name: text, State: text, Err: text}}})
			l := leaseRecord(id+text, "")
			l.Kind, l.Grant, l.Holder = text, text, dlock.Holder{Host: text, PID: 1, ID: text}
			e := event(id+text, 0)
			e.Name, e.Text, e.Holder = text, text, l.Holder
			r := run(id+text, text, 0)
			r.Err, r.By, r.Holder = text, text, l.Holder
			c.write(cluster.Batch{Host: &h, Leases: []cluster.LeaseRecord{l}, Events: []cluster.Event{e},
				Runs: []cluster.Run{r}})
			rows, _ := c.read()
			if len(rows.Hosts) != 1+i || len(rows.Leases) != 1+i || len(rows.Events) != 1+i || len(rows.Runs) != 1+i {
				c.fatalf("after %q: %d hosts, %d leases, %d events, %d runs, want %d each", text, len(rows.Hosts),
					len(rows.Leases), len(rows.Events), len(rows.Runs), 1+i)
			}
			for _, row := range rows.Hosts {
				if strings.HasPrefix(row.Holder.Host, fmt.Sprint("h", id)) && strings.HasPrefix(row.Holder.ID, id) &&
					kept(row.Holder.Host) == kept(h.Holder.Host) {
					c.text(row.Holder.ID, h.Holder.ID)
					c.text(row.Environment, text)
					c.text(row.AppVersion, text)
					c.text(row.Version, text)
					var d cluster.HostDetail
					if err := json.Unmarshal(row.Detail, &d); err != nil || len(d.Runners) != 1 {
						c.errorf("Detail %q: %v", row.Detail, err)
					} else {
						c.text(d.Runners[0].Err, text)
					}
				}
			}
			for _, row := range rows.Leases {
				if kept(row.Name) == kept(l.Name) {
					c.text(row.Name, l.Name)
					c.text(row.Kind, text)
					c.text(row.Grant, text)
					c.text(row.Holder.Host, text)
					c.text(row.Holder.ID, text)
				}
			}
			for _, row := range rows.Events {
				if kept(row.ID) == kept(e.ID) {
					c.text(row.Name, text)
					c.text(row.Text, text)
					c.text(row.Holder.Host, text)
				}
			}
			runs, _ := c.runs(text)
			if len(runs) == 0 {
				c.errorf("no runs of timer %q", text)
			}
			for _, row := range runs {
				if kept(row.ID) == kept(r.ID) {
					c.text(row.Timer, text)
					c.text(row.Err, text)
					c.text(row.By, text)
				}
			}
		}
	}},
	{"texts/a write finds its row whatever the text", func(c *check) {
		for i, text := range bad {
			h, l := heartbeat(text), leaseRecord(fmt.Sprint(i, text), text)
			h.Holder.ID = fmt.Sprint(i, text)
			l.Holder = h.Holder
			for range 2 {
				w, _ := c.writeTo(c.Store, cluster.Batch{Host: &h, Leases: []cluster.LeaseRecord{l}})
				if w.HostUnknown {
					c.errorf("host %q is unknown", text)
				}
				h.Detail, l.Released = nil, true
			}
			rows, _ := c.read()
			if len(rows.Hosts) != 1+i || len(rows.Leases) != 1+i {
				c.fatalf("after %q: %d hosts and %d leases, want %d each", text, len(rows.Hosts), len(rows.Leases), 1+i)
			}
			for _, row := range rows.Leases {
				if !row.Released {
					c.errorf("lease %q is not released", row.Name)
				}
			}
		}
	}},
	{"texts/differ if a byte does", func(c *check) {
		names := []string{"job", "Job", "JOB", "jób", "jo\u0301b", "job ", " job", "job\t", "job:", "jo"}
		for i, name := range names {
			h, l := heartbeat(name), leaseRecord(name, name)
			h.Holder.ID = name
			c.write(cluster.Batch{Host: &h, Leases: []cluster.LeaseRecord{l}, Events: []cluster.Event{event(name, 0)},
				Runs: []cluster.Run{run(name, name, 0), run(name+" of all", "all", 0)}})
			rows, _ := c.read()
			if len(rows.Hosts) != 1+i || len(rows.Leases) != 1+i || len(rows.Events) != 1+i || len(rows.Runs) != 2+2*i {
				c.fatalf("after %q: %d hosts, %d leases, %d events, %d runs, want %d, and twice as many runs", name,
					len(rows.Hosts), len(rows.Leases), len(rows.Events), len(rows.Runs), 1+i)
			}
		}
		for _, name := range names {
			if runs, _ := c.runs(name); len(runs) != 1 || runs[0].Timer != name {
				c.errorf("runs of %q: %+v, want its one", name, runs)
			}
		}
	}},
	{"texts/that are long are whole, or cut between runes", func(c *check) {
		h := heartbeat("a")
		h.Detail, _ = json.Marshal(map[string]string{"long": strings.Repeat("x漢", 100<<10/4)}) // 100 kB
		long := strings.Repeat("漢字", 2_000)
		e, r := event("e", 0), run("r", "t", 0)
		e.Text, r.Err = long, "x"+long
		c.write(cluster.Batch{Host: &h, Events: []cluster.Event{e}, Runs: []cluster.Run{r}})
		c.sameHost(c.host(), h)
		rows, _ := c.read()
		if len(rows.Events) != 1 || len(rows.Runs) != 1 {
			c.fatalf("%d events and %d runs, want 1 each", len(rows.Events), len(rows.Runs))
		}
		for got, want := range map[string]string{rows.Events[0].Text: e.Text, rows.Runs[0].Err: r.Err} {
			start := strings.TrimSuffix(got, "…")
			if len(start) < 200 || !utf8.ValidString(got) || !strings.HasPrefix(want, start) {
				c.errorf("%d bytes of %d came back, which end in %q", len(got), len(want), got[max(0, len(got)-20):])
			}
		}
	}},
}

// text checks that a text came back unchanged, except for characters that a store may drop or
// replace.
func (c *check) text(got, want string) {
	if got != want && kept(got) != kept(want) {
		c.errorf("%q came back as %q", want, got)
	}
}

// kept returns the characters of a text that every store keeps.
func kept(text string) string {
	return strings.Map(func(r rune) rune {
		if r == 0 || r == utf8.RuneError {
			return -1
		}
		return r
	}, text)
}
