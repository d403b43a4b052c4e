package top_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cmd/tickslot/internal/fleet"
	"github.com/tickslot/tickslot/cmd/tickslot/internal/top"
	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
)

// hostile tries to clear the screen, set its title, change the writing direction and end the line.
const hostile = "a\x1b[2J\x1b]0;owned\x07\u202eb\nc\td\u009b31m\xff"

// A screen runs a model in a test: it sends keys and executes the commands that Update returns.
type screen struct {
	t        *testing.T
	model    tea.Model
	messages chan tea.Msg
	under    int // commands in progress
	quit     bool
}

func start(t *testing.T, ctx context.Context, width, height int, o top.Options) *screen {
	s := &screen{t: t, model: top.NewModel(ctx, o), messages: make(chan tea.Msg, 1000)}
	t.Cleanup(s.end)
	s.do(s.model.Init())
	s.tell(tea.WindowSizeMsg{Width: width, Height: height})
	return s
}

// do executes commands in the background, as bubbletea does.
func (s *screen) do(c tea.Cmd) {
	if c != nil {
		s.under++
		go func() { s.messages <- c() }()
	}
}

// end waits for commands in progress, which a real program does not need to do.
func (s *screen) end() {
	for ; s.under > 0; s.under-- {
		if batch, ok := (<-s.messages).(tea.BatchMsg); ok {
			for _, c := range batch {
				s.do(c)
			}
		}
	}
}

// next handles the message of a command.
func (s *screen) next(msg tea.Msg) {
	s.under--
	s.tell(msg)
}

func (s *screen) tell(msg tea.Msg) {
	switch msg := msg.(type) {
	case tea.BatchMsg:
		for _, c := range msg {
			s.do(c)
		}
	case tea.QuitMsg:
		s.quit = true
	default:
		var next tea.Cmd
		s.model, next = s.model.Update(msg)
		s.do(next)
	}
}

// pass lets time pass.
func (s *screen) pass(d time.Duration) {
	for end := time.After(d); ; {
		select {
		case msg := <-s.messages:
			s.next(msg)
		case <-end:
			// Wait for the effects of the message as well, so that the test can check them.
			for synctest.Wait(); len(s.messages) > 0; synctest.Wait() {
				s.next(<-s.messages)
			}
			return
		}
	}
}

// press presses keys by their names. A single letter is also a key.
func (s *screen) press(keys ...string) {
	codes := map[string]rune{"tab": tea.KeyTab, "down": tea.KeyDown, "up": tea.KeyUp, "end": tea.KeyEnd,
		"home": tea.KeyHome, "pgdown": tea.KeyPgDown, "enter": tea.KeyEnter, "esc": tea.KeyEscape,
		"backspace": tea.KeyBackspace}
	for _, k := range keys {
		code, ok := codes[k]
		if ok {
			s.tell(tea.KeyPressMsg{Code: code})
			continue
		}
		s.tell(tea.KeyPressMsg{Code: rune(k[0]), Text: k})
	}
	s.pass(0)
}

// lines returns the visible lines.
func (s *screen) lines() []string {
	return strings.Split(ansi.Strip(s.model.View().Content), "\n")
}

func (s *screen) has(texts ...string) {
	s.t.Helper()
	all := strings.Join(s.lines(), "\n")
	for _, text := range texts {
		if !strings.Contains(all, text) {
			s.t.Errorf("%q is not on the screen:\n%s", text, all)
		}
	}
}

// before checks that one text is above another.
func (s *screen) before(first, second string) {
	s.t.Helper()
	find := func(text string) int {
		return slices.IndexFunc(s.lines(), func(l string) bool { return strings.HasPrefix(l, text) })
	}
	if a, b := find(first), find(second); a < 0 || b < 0 || a > b {
		s.t.Errorf("%q is in line %d, %q in line %d:\n%s", first, a, second, b, strings.Join(s.lines(), "\n"))
	}
}

func holder(name string) dlock.Holder { return dlock.Holder{Host: name, PID: 7, ID: "abc"} }

// fleetOf returns a fleet with every kind of fault.
func fleetOf(timers int) top.Reading {
	now := time.Now()
	s := &cluster.Snapshot{ReadAt: now}
	detail := func() (list []cluster.TimerDetail) {
		for i := range timers {
			list = append(list, cluster.TimerDetail{Name: fmt.Sprintf("timer-%02d", i), MaxConcurrency: 3})
		}
		return append(list, cluster.TimerDetail{Name: hostile, MaxConcurrency: 1})
	}()
	for i, state := range []cluster.HostState{cluster.HostAlive, cluster.HostAlive, cluster.HostSuspect} {
		s.Hosts = append(s.Hosts, cluster.Host{Holder: holder(fmt.Sprintf("web-%d", i)), State: state,
			AppVersion: "1.2", StartedAt: now.Add(-time.Hour), SeenAt: now.Add(-time.Second), TTL: 30 * time.Second,
			Timers: detail})
	}
	s.Hosts[1].Runners = []cluster.RunnerDetail{{Kind: "leader", Name: hostile, Err: "no route " + hostile}}
	for slot, h := range []string{"web-0", "web-2"} {
		l := cluster.Lease{Name: "timer:timer-01", Slot: slot, Kind: cluster.KindTimer, State: cluster.LeaseHeld,
			Holder: holder(h), HostState: cluster.HostAlive, AcquiredAt: now.Add(-time.Minute)}
		if h == "web-2" {
			l.HostState = cluster.HostSuspect
		}
		s.Leases = append(s.Leases, l)
	}
	for range 3 {
		s.Runs = append(s.Runs, cluster.HistoryRun{EndedAt: now.Add(-5 * time.Second), Run: cluster.Run{
			Timer: "timer-02", Outcome: "error", Err: "no paper", Holder: holder("web-0"),
			Took: 1500 * time.Millisecond}})
	}
	reading := top.Reading{Snapshot: s, Timers: fleet.Timers(s)}
	reading.Timers[1].Pause = &fleet.Override{Cause: driver.Cause{By: "ann", Note: hostile}, Left: time.Hour}
	fleet.Keep(reading.Timers, reading.Timers)
	return reading
}

// The screen shows what needs attention, timers with their slots, and hosts. At any size, no line
// is too long, there are not too many lines, and no name can control the terminal.
//
// Fails when a line is not bounded, or when untrusted text is shown unescaped.
func TestScreensOfAllSizes(t *testing.T) {
	t.Parallel()
	for _, size := range [][2]int{{200, 50}, {100, 30}, {80, 24}, {80, 12}, {80, 11}, {40, 10}, {20, 5}, {3, 2}, {1, 1},
		{0, 0}} {
		synctest.Test(t, func(t *testing.T) {
			reading := fleetOf(10)
			s := start(t, t.Context(), size[0], size[1], top.Options{Store: "Redis " + hostile, Interval: time.Hour,
				Read: func(context.Context) top.Reading { return reading }})
			s.pass(time.Second)
			lines := s.lines()
			if len(lines) > max(1, size[1]) {
				t.Errorf("%v: %d lines", size, len(lines))
			}
			for _, line := range lines {
				if n := ansi.StringWidth(line); n > size[0] {
					t.Errorf("%v: %d characters: %q", size, n, line)
				}
				for _, r := range line {
					if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == unicode.ReplacementChar {
						t.Errorf("%v: %U in %q", size, r, line)
					}
				}
			}
			if size[1] >= 24 && size[0] >= 80 {
				s.has("read 1s ago", "timers: 1 failing, 8 idle", "hosts: 2 alive, 1 suspect", "leases held: 2",
					"! web-2/7/abc is silent",
					"! timer-02 is failing since 1999-12-31 23:59 UTC, 3 in a row; the latest: error",
					"TIMERS by attention", "2/3 #!.", "web-0 1m1s", "0/3 ...", "HOSTS", "web-0/7/abc", "q quit")
				s.before("timer-02", "timer-00") // it fails
				s.before("timer-00", "timer-01") // it is paused
				s.before("web-2/7/abc", "web-0/7/abc")
			}
			if size[0] == 200 {
				s.has("by ann: a\\u001b[2J", "no paper", "leader a\\u001b[2J")
			}
			s.press("q")
			if !s.quit {
				t.Error("q does not quit")
			}
		})
	}
}

// Keys sort, reverse, filter and scroll. Their effect remains when the screen changes its size.
//
// Fails when a key does something else, or when the list scrolls beyond its end.
func TestKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reading := fleetOf(40)
		s := start(t, t.Context(), 80, 24, top.Options{Interval: time.Hour,
			Read: func(context.Context) top.Reading { return reading }})
		s.pass(time.Second)
		s.press("s")
		s.has("TIMERS by name, 1 to 9 of 41")
		s.before("timer-00", "timer-01")
		s.press("r")
		s.has("TIMERS by name, reversed")
		s.before("timer-39", "timer-38")
		s.press("r", "s")
		s.has("TIMERS by slots held")
		s.before("timer-01", "timer-00")
		s.press("s")
		s.has("TIMERS by last run")
		s.before("timer-02", "timer-00")
		s.press("s", "s", "down", "down", "pgdown")
		s.has("TIMERS by name, 4 to 12 of 41", "enter timer-10")
		s.press("end", "down")
		s.has("33 to 41 of 41", "timer-39")
		s.tell(tea.WindowSizeMsg{Width: 100, Height: 60})
		s.has("TIMERS by name", "timer-00", "timer-39", "web-1/7/abc")
		s.tell(tea.WindowSizeMsg{Width: 80, Height: 24})
		s.press("home", "/", "T", "i", "m", "e", "r", "-", "1", "9", "x", "backspace")
		s.has("show only names with: Timer-19_", `TIMERS by name, with "Timer-19"`, "timer-19", "none")
		s.press("enter", "tab")
		s.has("tab timers", "/ filter")
		if slices.ContainsFunc(s.lines(), func(l string) bool { return strings.HasPrefix(l, "timer-18") }) {
			t.Error("what is filtered is there")
		}
		s.press("esc")
		s.has("timer-00", "web-0/7/abc")
		s.press("/", "q")
		if s.quit {
			t.Error("a letter of the filter quits")
		}
		s.tell(tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl})
		s.pass(0)
		if !s.quit {
			t.Error("ctrl+c does not quit")
		}
	})
}

// While a store fails or hangs, the first line says how old the rest is, and the first notice how
// many runs there may be without the store. Keys work meanwhile, there is one read at a time, and
// when the store is back the view shows it.
//
// Fails when a read waits for the store, when an old read is shown as if it were new, or when the
// notice is missing, counts a timer that is paused, or stays.
func TestStoreIsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		// Three hosts have each timer; timer-00 is paused.
		const without = "! unless hosts still reach the store, 3 timers run without it: up to 9 runs at once of " +
			"timer-01 instead of 3"
		fault, hang, calls, busy := error(nil), false, 0, 0
		last := top.Reading{Snapshot: &cluster.Snapshot{}}
		read := func(ctx context.Context) top.Reading {
			if calls, busy = calls+1, busy+1; busy > 1 {
				t.Error("it is asked twice at once")
			}
			defer func() { busy-- }()
			if hang {
				<-ctx.Done()
				return last
			}
			if fault == nil {
				last = fleetOf(3)
			}
			reading := last
			if fault != nil {
				reading.Err = fault.Error()
			}
			return reading
		}
		fault = errors.New("connection refused")
		s := start(t, ctx, 80, 24, top.Options{Store: "Redis here", Read: read, Interval: 2 * time.Second})
		s.pass(time.Second)
		s.has("NOTHING WAS READ YET: Redis here: connection refused")
		fault = nil
		s.pass(2 * time.Second)
		s.has("s ago, Redis here")
		fault = errors.New("connection \x1b[2J reset")
		s.pass(30 * time.Second)
		s.has(`THIS IS 3`, `OLD: Redis here: connection \u001b[2J reset`, "timer-02", "web-0/7/abc")
		s.tell(tea.WindowSizeMsg{Width: 200, Height: 24})
		s.has(without)
		s.before(without, "! web-2/7/abc is silent") // the first
		fault = nil
		s.pass(2 * time.Second)
		s.has("s ago, Redis here")
		if strings.Contains(strings.Join(s.lines(), "\n"), "unless hosts") {
			t.Error("the outage is over, and is still told")
		}
		hang = true
		s.pass(10 * time.Second)
		before := calls
		s.pass(10 * time.Second)
		s.has("OLD: Redis here has not answered for 1", without)
		s.press("s")
		s.has("TIMERS by name")
		if calls != before {
			t.Errorf("%d calls while one is under way", calls-before)
		}
		stop()
	})
}

// workOf returns durable runs and an outbox with dead letters.
func workOf() top.Work {
	now := time.Now()
	return top.Work{
		DurableAt: now, OutboxAt: now, Pending: 12, Dead: 1, DueAge: 5 * time.Second,
		Handlers: []top.Handler{{Name: "invoice", Queued: 4, Running: 1, SeenAt: now, Limit: "2"},
			{Name: hostile, Limit: "none", Dead: 3, Paused: "paused by ann"}},
		Messages: []top.Message{{ID: "0190-1", Topic: hostile, Dead: true, Attempts: 10, CreatedAt: now,
			LastError: "500 " + hostile}, {ID: "0190-2", Topic: "orders", Attempts: 2, CreatedAt: now,
			LastError: "refused"}},
	}
}

// If the database has them, handlers of durable runs and messages are shown in addition to the
// timers, and dead letters are listed as needing attention. Otherwise they are not mentioned.
//
// Fails when a list is left out, is shown without tables, or shows a name unescaped.
func TestDurableRunsAndMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		none, hang := top.Work{}, false
		work := func(ctx context.Context) top.Work {
			if hang {
				<-ctx.Done()
			}
			return none
		}
		s := start(t, t.Context(), 120, 40, top.Options{Interval: time.Second, ReadWork: work,
			Read: func(context.Context) top.Reading { return fleetOf(3) }})
		s.pass(time.Second)
		all := strings.Join(s.lines(), "\n")
		if strings.Contains(all, "DURABLE") || strings.Contains(all, "OUTBOX") {
			t.Errorf("there are no tables:\n%s", all)
		}
		s.press("tab")
		s.has("tab timers")
		none = workOf()
		s.pass(2 * time.Second)
		s.press("tab", "tab")
		s.has("DURABLE HANDLERS: runs 4 queued, 1 running, 3 dead", "invoice",
			"OUTBOX MESSAGES: 12 pending, 1 dead, one is due for 5s", "orders",
			"failed, pending", "has 3 runs dead", "1 dead message of the outbox",
			`500 a\u001b[2J`, "tab messages")
		s.before(`a\u001b[2J`, "invoice")
		hang = true
		s.pass(30 * time.Second)
		s.has("dead, THIS IS 32s OLD: no answer", "tickslot top: read ")
		s.press("q")
		if !s.quit {
			t.Error("q does not quit")
		}
	})
	for _, size := range [][2]int{{80, 24}, {80, 15}, {40, 10}, {20, 5}, {3, 2}, {1, 1}, {0, 0}} {
		synctest.Test(t, func(t *testing.T) {
			s := start(t, t.Context(), size[0], size[1], top.Options{Interval: time.Hour,
				Read:     func(context.Context) top.Reading { return fleetOf(3) },
				ReadWork: func(context.Context) top.Work { return workOf() },
				Detail:   func(context.Context, top.Subject) ([]string, error) { return []string{hostile, "x"}, nil }})
			s.pass(time.Second)
			for _, keys := range [][]string{nil, {"tab"}, {"p"}, {"n", "enter"}, {"?"}} {
				s.press(keys...)
				if n := len(s.lines()); n > max(1, size[1]) {
					t.Errorf("%v: %d lines after %q", size, n, keys)
				}
				for _, line := range s.lines() {
					if n := ansi.StringWidth(line); n > size[0] {
						t.Errorf("%v: %d characters: %q", size, n, line)
					}
				}
			}
		})
	}
}

// acts records the actions on a fake store.
type acts struct {
	done []string
	err  error
	hang chan struct{} // if nil, the store answers immediately
}

func (a *acts) act(ctx context.Context, action top.Action, on top.Subject) (string, error) {
	if a.hang != nil {
		select {
		case <-a.hang:
		case <-ctx.Done():
		}
	}
	if a.err != nil {
		return "", a.err
	}
	a.done = append(a.done, fmt.Sprintf("%s %s %q", action, on.Kind, on.Name))
	return "written: " + on.Name, nil
}

func (a *acts) detail(_ context.Context, of top.Subject) ([]string, error) {
	if a.err != nil {
		return nil, a.err
	}
	return []string{"all of " + of.Name, "a second line " + hostile}, nil
}

// A key that changes something first asks on the last line, and then shows the result or the reason
// for a failure. The subject stays the same, although rows may move in the meantime.
//
// Fails when something is written without confirmation, for another row, or twice.
func TestActing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reading := fleetOf(5)
		fake := &acts{}
		expect := func(want ...string) {
			t.Helper()
			if !slices.Equal(fake.done, want) {
				t.Errorf("%q was done, and not %q", fake.done, want)
			}
			fake.done = nil
		}
		s := start(t, t.Context(), 100, 40, top.Options{Interval: time.Second, Act: fake.act, Detail: fake.detail,
			Read:     func(context.Context) top.Reading { return reading },
			ReadWork: func(context.Context) top.Work { return workOf() }})
		s.pass(time.Second)
		s.press("s", "j", "down", "up") // by name: the second row
		s.press("p")
		last := func() string { return s.lines()[len(s.lines())-1] }
		if !strings.HasPrefix(last(), `y or n? end the pause of timer timer-00`) {
			t.Errorf("it asks %q", last())
		}
		s.press("x", "down", "enter", "t")
		expect()
		s.press("n")
		s.has("nothing was changed")
		expect()
		s.press("j", "p") // timer-01, and then a row is inserted before it
		reading.Timers = slices.Insert(reading.Timers, 0, &fleet.Timer{Name: "aaa", State: "idle"})
		s.pass(2 * time.Second)
		s.press("y")
		expect(`pause timer "timer-01"`)
		s.has("written: timer-01")
		s.press("y")
		expect()
		s.has("enter timer-01")
		s.press("t", "y")
		expect(`trigger timer "timer-01"`)
		s.press("tab", "t", "esc", "t", "y")
		s.press("y", "p", "y")
		expect(fmt.Sprintf("trigger durable handler %q", hostile), fmt.Sprintf("resume durable handler %q", hostile))
		s.press("tab", "p")
		s.has("refused: p is for timers and durable handlers")
		s.press("y")
		expect()

		s.press("tab", "tab") // back to the timers
		fake.err = errors.New("nothing is changed: \x1b[2J no rights")
		s.press("p", "y")
		s.has(`refused: nothing is changed: \u001b[2J no rights`)
		fake.err = nil

		fake.hang = make(chan struct{})
		s.press("t", "y")
		s.pass(20 * time.Second)
		s.has("trigger timer timer-01: no answer yet, for 2", "tickslot top: read ")
		s.press("down", "t")
		s.has("refused: one thing at a time")
		s.press("y")
		expect()
		close(fake.hang)
		s.pass(time.Second)
		expect(`trigger timer "timer-01"`)
	})
}

// The enter key shows the detail of a row and keeps it current. Keys act on the detail's subject,
// and lead back to the list.
//
// Fails when a detail belongs to another row, is not updated, or hides an error.
func TestDetail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reading, fake, reads, hang := fleetOf(5), &acts{}, 0, false
		s := start(t, t.Context(), 60, 24, top.Options{Interval: time.Second, Act: fake.act,
			Read: func(context.Context) top.Reading { return reading },
			Detail: func(ctx context.Context, of top.Subject) ([]string, error) {
				reads++
				if hang {
					<-ctx.Done()
				}
				return fake.detail(ctx, of)
			}})
		s.pass(time.Second)
		s.press("s", "j", "enter")
		s.has("timer timer-00", "all of timer-00", `a second line a\u001b[2J`, `31m\xff`) // long lines are wrapped
		s.pass(10 * time.Second)
		if reads < 9 || reads > 12 {
			t.Errorf("it was read %d times in 10 s", reads)
		}
		s.press("p", "y") // it is paused: see fleetOf
		if !slices.Equal(fake.done, []string{`resume timer "timer-00"`}) {
			t.Errorf("%q", fake.done)
		}
		reads = 0
		s.pass(10 * time.Second)
		if reads > 12 {
			t.Errorf("after an action it was read %d times in 10 s", reads)
		}
		fake.err = errors.New("connection refused")
		s.pass(10 * time.Second)
		s.has("all of timer-00", "OLD: connection refused")
		fake.err = nil
		s.press("?")
		s.has("KEYS", "pause the timer or the durable handler for 1h")
		s.press("q", "esc", "down")
		s.has("TIMERS by name", "enter timer-01")
		hang = true
		s.press("enter")
		s.pass(10 * time.Second)
		s.has("timer timer-01: reading")
		s.press("esc", "down", "enter", "q", "q")
		if !s.quit {
			t.Error("q does not quit")
		}
	})
}
