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

// The lists. One row of one list is chosen. The lists of durable handlers and of messages exist if
// the database has them.
const (
	paneTimers = iota
	paneHandlers
	paneMessages
	paneHosts
	panes
)

// The sort orders of timers.
const (
	byAttention = iota
	byName
	bySlots
	byLastRun
	orders
)

var orderNames = [orders]string{"attention", "name", "slots held", "last run"}

// The parts that are read repeatedly.
const (
	loopFleet = iota
	loopWork
	loopDetail
	loops
)

const maxFilter = 100 // characters

// A model is the state of the screen. Only Update changes it.
type model struct {
	Options
	ctx           context.Context
	width, height int
	now           time.Time

	last     Reading
	hasRead  bool       // last is set
	reads    [loops]int // number of reads begun
	reading  time.Time  // start of the read in progress; zero if none
	work     Work
	working  bool           // a read is in progress
	timers   []*fleet.Timer // shown timers, in order
	hosts    []cluster.Host
	handlers []Handler
	messages []Message
	notices  []fleet.Notice

	order   int
	reverse bool
	filter  string
	typing  bool // the user is typing the filter
	pane    int
	at      [panes]int    // the chosen row
	chosen  [panes]string // its name, which finds it again when rows move
	skipped [panes]int    // rows scrolled out above

	desk
}

type (
	clockMsg    time.Time // a second has passed
	readMsg     int       // time to read, if no read has begun since this one
	readingMsg  Reading   // the read has ended
	readWorkMsg int
	workMsg     Work
)

func newModel(ctx context.Context, o Options) *model {
	return &model{Options: o, ctx: ctx, now: time.Now(), filter: o.Filter, width: 80, height: 24}
}

// Init implements tea.Model.
func (m *model) Init() tea.Cmd { return tea.Batch(m.read(), m.readWork(), tick()) }

func tick() tea.Cmd { return tea.Tick(time.Second, func(at time.Time) tea.Msg { return clockMsg(at) }) }

// read reads in the background, unless a read is in progress.
func (m *model) read() tea.Cmd {
	if !m.reading.IsZero() {
		return nil
	}
	m.reading = time.Now()
	m.reads[loopFleet]++
	return func() tea.Msg { return readingMsg(m.Read(m.ctx)) }
}

func (m *model) readWork() tea.Cmd {
	if m.ReadWork == nil || m.working {
		return nil
	}
	m.working = true
	m.reads[loopWork]++
	return func() tea.Msg { return workMsg(m.ReadWork(m.ctx)) }
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
		if int(msg) == m.reads[loopFleet] {
			next = m.read()
		}
	case readingMsg:
		m.last, m.hasRead, m.reading, m.now = Reading(msg), true, time.Time{}, time.Now()
		n := m.reads[loopFleet]
		next = tea.Tick(m.Interval, func(time.Time) tea.Msg { return readMsg(n) })
	case readWorkMsg:
		if int(msg) == m.reads[loopWork] {
			next = m.readWork()
		}
	case workMsg:
		m.work, m.working = Work(msg), false
		n := m.reads[loopWork]
		next = tea.Tick(m.Interval, func(time.Time) tea.Msg { return readWorkMsg(n) })
	case detailMsg:
		next = m.detailRead(msg)
	case readDetailMsg:
		if int(msg) == m.reads[loopDetail] {
			next = m.readDetail()
		}
	case actedMsg:
		next = m.acted(msg)
	case tea.PasteMsg:
		if m.typing {
			m.typed(msg.Content)
		}
	case tea.KeyPressMsg:
		if msg.String() == "ctrl+c" {
			return m, tea.Quit
		}
		switch {
		case m.typing:
			m.typeKey(msg)
		case m.asked != "":
			next = m.answer(msg)
		default:
			next = m.key(msg)
		}
	}
	m.arrange()
	return m, next
}

// key handles a key.
func (m *model) key(k tea.KeyPressMsg) tea.Cmd {
	m.said = said{}
	if m.helping {
		m.helping = k.String() != "q" && k.String() != "esc" && k.String() != "?"
		return nil
	}
	if m.open {
		return m.detailKey(k)
	}
	rows := m.plan().rows[m.pane]
	switch k.String() {
	case "q":
		return tea.Quit
	case "ctrl+z":
		return tea.Suspend
	case "esc":
		if m.filter == "" {
			return tea.Quit
		}
		m.filter = ""
	case "/":
		m.typing = true
	case "s":
		m.order = (m.order + 1) % orders
		m.choose(paneTimers, 0)
	case "r":
		m.reverse = !m.reverse
		m.choose(paneTimers, 0)
	case "tab":
		m.pane = m.nextPane()
	case "up", "k":
		m.choose(m.pane, m.at[m.pane]-1)
	case "down", "j":
		m.choose(m.pane, m.at[m.pane]+1)
	case "pgup":
		m.choose(m.pane, m.at[m.pane]-rows)
	case "pgdown", "space":
		m.choose(m.pane, m.at[m.pane]+rows)
	case "home", "g":
		m.choose(m.pane, 0)
	case "end", "G":
		m.choose(m.pane, len(m.names(m.pane))-1)
	default:
		return m.act(k.String())
	}
	return nil
}

// shown returns the lists that exist.
func (m *model) shown() []int {
	list := []int{paneTimers}
	if !m.work.DurableAt.IsZero() {
		list = append(list, paneHandlers)
	}
	if !m.work.OutboxAt.IsZero() {
		list = append(list, paneMessages)
	}
	return append(list, paneHosts)
}

func (m *model) nextPane() int {
	list := m.shown()
	return list[(slices.Index(list, m.pane)+1)%len(list)]
}

// names returns the names of the rows of a list.
func (m *model) names(pane int) (names []string) {
	switch pane {
	case paneTimers:
		for _, t := range m.timers {
			names = append(names, t.Name)
		}
	case paneHandlers:
		for _, h := range m.handlers {
			names = append(names, h.Name)
		}
	case paneMessages:
		for _, r := range m.messages {
			names = append(names, r.ID)
		}
	case paneHosts:
		for _, h := range m.hosts {
			names = append(names, h.Holder.String())
		}
	}
	return names
}

// choose chooses a row of a list, or the nearest one. The first row stays chosen by its position
// until the user moves, because another row may become the first before the user sees it.
func (m *model) choose(pane, at int) {
	names := m.names(pane)
	m.at[pane], m.chosen[pane] = max(0, min(at, len(names)-1)), ""
	if m.at[pane] > 0 {
		m.chosen[pane] = names[m.at[pane]]
	}
}

// follow finds the chosen row again if rows have moved, and scrolls to it.
func (m *model) follow(pane, rows int) {
	names := m.names(pane)
	at := min(m.at[pane], len(names)-1)
	if was := m.chosen[pane]; was != "" && at >= 0 && names[at] != was {
		if i := slices.Index(names, was); i >= 0 {
			at = i
		}
	}
	m.at[pane] = max(0, at)
	top := max(m.at[pane]-rows+1, min(m.skipped[pane], m.at[pane]))
	m.skipped[pane] = max(0, min(top, len(names)-rows))
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
	m.at, m.chosen, m.skipped = [panes]int{}, [panes]string{}, [panes]int{}
	if letters := []rune(m.filter + text); len(letters) <= maxFilter {
		m.filter = string(letters)
	}
}

// arrange filters and sorts the shown rows.
func (m *model) arrange() {
	has := func(name string) bool { return strings.Contains(strings.ToLower(name), strings.ToLower(m.filter)) }
	s := m.last.Snapshot
	if s == nil {
		s = &cluster.Snapshot{} // nothing was read yet
	}
	m.notices = append(fleet.Notices(s, m.last.Timers, m.now), m.workNotices()...)
	if text := fleet.Outage(m.last.Timers); m.silent() && text != "" {
		m.notices = slices.Insert(m.notices, 0, fleet.Notice{Urgent: true, Text: text})
	}
	urgent := func(n fleet.Notice) int {
		if n.Urgent {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(m.notices, func(a, b fleet.Notice) int { return urgent(b) - urgent(a) })
	m.timers, m.hosts, m.handlers, m.messages = nil, nil, nil, nil
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
	for _, h := range m.work.Handlers {
		if has(h.Name) {
			m.handlers = append(m.handlers, h)
		}
	}
	for _, r := range m.work.Messages {
		if has(r.Topic) || has(r.ID) {
			m.messages = append(m.messages, r)
		}
	}
	slices.SortStableFunc(m.timers, m.compare)
	slices.SortStableFunc(m.handlers, func(a, b Handler) int {
		return cmp.Compare(handlerLevel(b), handlerLevel(a))
	})
	slices.SortStableFunc(m.hosts, func(a, b cluster.Host) int {
		return cmp.Compare(hostLevel(b), hostLevel(a))
	})
	if m.reverse {
		slices.Reverse(m.timers)
	}
	if !slices.Contains(m.shown(), m.pane) {
		m.pane = paneTimers
	}
	p := m.plan()
	for pane := range panes {
		m.follow(pane, p.rows[pane])
	}
}

// compare orders timers that are already sorted by name.
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

// A level says how much attention something needs.
type level int

const (
	levelQuiet  level = iota // idle as expected
	levelBusy                // working
	levelWarn                // not working, perhaps on request
	levelUrgent              // not working as it should
)

var (
	timerLevels = map[string]level{"failing": levelUrgent, "unknown": levelUrgent, "no host": levelWarn,
		"paused": levelWarn, "running": levelBusy}
	hostLevels = map[string]level{string(cluster.HostSuspect): levelUrgent, string(cluster.HostGone): levelUrgent,
		string(cluster.HostRefused): levelUrgent, string(cluster.HostAlive): levelBusy}
)

func timerLevel(t *fleet.Timer) level { return timerLevels[t.State] }
func hostLevel(h cluster.Host) level  { return hostLevels[fleet.HostState(h)] }
