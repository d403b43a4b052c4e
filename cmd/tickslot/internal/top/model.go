package top

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cmd/tickslot/internal/fleet"
)

// The lists. One of them is scrolled.
const (
	paneTimers = iota
	paneHosts
	panes
)

// What timers are sorted by.
const (
	byAttention = iota
	byName
	bySlots
	byLastRun
	orders
)

var orderNames = [orders]string{"attention", "name", "slots held", "last run"}

const maxFilter = 100 // characters

// A model is what is on the screen. It is changed by Update only.
type model struct {
	Options
	ctx           context.Context
	width, height int
	now           time.Time

	last    Reading
	hasRead bool           // there is a last one
	reading time.Time      // since when it is read; zero: it is not
	timers  []*fleet.Timer // that are shown, in order
	hosts   []cluster.Host
	notices []fleet.Notice

	order   int
	reverse bool
	filter  string
	typing  bool // the filter
	pane    int
	skipped [panes]int // rows above the first that is shown
}

type (
	clockMsg   time.Time // a second has passed
	readMsg    struct{}  // it is time to read
	readingMsg Reading   // it was read
)

func newModel(ctx context.Context, o Options) *model {
	return &model{Options: o, ctx: ctx, now: time.Now(), filter: o.Filter, width: 80, height: 24}
}

// Init implements tea.Model.
func (m *model) Init() tea.Cmd { return tea.Batch(m.read(), tick()) }

func tick() tea.Cmd { return tea.Tick(time.Second, func(at time.Time) tea.Msg { return clockMsg(at) }) }

// read reads in the background, unless a read is under way.
func (m *model) read() tea.Cmd {
	if !m.reading.IsZero() {
		return nil
	}
	m.reading = time.Now()
	return func() tea.Msg { return readingMsg(m.Read(m.ctx)) }
}

// Update implements tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var next tea.Cmd
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case clockMsg:
		m.now = time.Time(msg)
		next = tick()
	case readMsg:
		next = m.read()
	case readingMsg:
		m.last, m.hasRead, m.reading, m.now = Reading(msg), true, time.Time{}, time.Now()
		next = tea.Tick(m.Interval, func(time.Time) tea.Msg { return readMsg{} })
	case tea.PasteMsg:
		if m.typing {
			m.typed(msg.Content)
		}
	case tea.KeyPressMsg:
		if msg.String() == "ctrl+c" {
			return m, tea.Quit
		}
		if m.typing {
			m.typeKey(msg)
		} else {
			next = m.key(msg)
		}
	}
	m.arrange()
	return m, next
}

// key does what a key asks for.
func (m *model) key(k tea.KeyPressMsg) tea.Cmd {
	rows := m.plan().rows[m.pane]
	switch k.String() {
	case "q":
		return tea.Quit
	case "ctrl+z":
		return tea.Suspend
	case "esc":
		m.filter = ""
	case "/":
		m.typing = true
	case "s":
		m.order, m.skipped[paneTimers] = (m.order+1)%orders, 0
	case "r":
		m.reverse = !m.reverse
	case "tab":
		m.pane = (m.pane + 1) % panes
	case "up", "k":
		m.skipped[m.pane]--
	case "down", "j":
		m.skipped[m.pane]++
	case "pgup":
		m.skipped[m.pane] -= rows
	case "pgdown", "space":
		m.skipped[m.pane] += rows
	case "home", "g":
		m.skipped[m.pane] = 0
	case "end", "G":
		m.skipped[m.pane] = len(m.timers) + len(m.hosts) // arrange takes less
	}
	return nil
}

func (m *model) typeKey(k tea.KeyPressMsg) {
	switch k.String() {
	case "enter":
		m.typing = false
	case "esc":
		m.typing, m.filter = false, ""
	case "backspace":
		if letters := []rune(m.filter); len(letters) > 0 {
			m.filter = string(letters[:len(letters)-1])
		}
	default:
		m.typed(k.Text)
	}
}

func (m *model) typed(text string) {
	m.skipped = [panes]int{}
	if letters := []rune(m.filter + text); len(letters) <= maxFilter {
		m.filter = string(letters)
	}
}

// arrange chooses and sorts what is shown.
func (m *model) arrange() {
	if !m.hasRead {
		return
	}
	has := func(name string) bool { return strings.Contains(strings.ToLower(name), strings.ToLower(m.filter)) }
	s := m.last.Snapshot
	m.notices = fleet.Notices(s, m.last.Timers, m.now)
	m.timers, m.hosts = nil, nil
	for _, t := range m.last.Timers {
		if has(t.Name) {
			m.timers = append(m.timers, t)
		}
	}
	for _, h := range s.Hosts {
		if has(h.Holder.String()) {
			m.hosts = append(m.hosts, h)
		}
	}
	slices.SortStableFunc(m.timers, m.compare)
	slices.SortStableFunc(m.hosts, func(a, b cluster.Host) int {
		return cmp.Compare(hostLevel(b), hostLevel(a))
	})
	if m.reverse {
		slices.Reverse(m.timers)
	}
	p := m.plan()
	for pane, of := range [panes]int{len(m.timers), len(m.hosts)} {
		m.skipped[pane] = max(0, min(m.skipped[pane], of-p.rows[pane]))
	}
}

// compare orders timers, which are by name.
func (m *model) compare(a, b *fleet.Timer) int {
	switch m.order {
	case byAttention:
		return cmp.Compare(timerLevel(b), timerLevel(a))
	case bySlots:
		return cmp.Compare(len(b.Held), len(a.Held))
	case byLastRun:
		return lastRun(b).Compare(lastRun(a))
	}
	return 0
}

func lastRun(t *fleet.Timer) time.Time {
	if t.Last == nil {
		return time.Time{}
	}
	return t.Last.EndedAt
}

// A level says how much something wants attention.
type level int

const (
	levelQuiet  level = iota // it is as it should be, and does nothing
	levelBusy                // it works
	levelWarn                // it does not work, as somebody has asked perhaps
	levelUrgent              // it does not work as it should
)

var (
	timerLevels = map[string]level{"failing": levelUrgent, "unknown": levelUrgent, "no host": levelWarn,
		"paused": levelWarn, "running": levelBusy}
	hostLevels = map[string]level{string(cluster.HostSuspect): levelUrgent, string(cluster.HostGone): levelUrgent,
		string(cluster.HostRefused): levelUrgent, string(cluster.HostAlive): levelBusy}
)

func timerLevel(t *fleet.Timer) level { return timerLevels[t.State] }
func hostLevel(h cluster.Host) level  { return hostLevels[fleet.HostState(h)] }
