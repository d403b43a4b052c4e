package top

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cmd/tickslot/internal/fleet"
	"github.com/tickslot/tickslot/cmd/tickslot/internal/show"
	"github.com/tickslot/tickslot/internal/inert"
)

const (
	maxBoxes   = 10              // slots drawn as boxes
	maxHolders = 3               // holders shown by name
	slowRead   = 3 * time.Second // after which the view says that the store has not answered
	minRows    = 4               // of all lists; with less room only one list is shown
	wideScreen = 120             // characters from which rarely needed columns are shown
)

// styles uses the 16 colors of a terminal, which its user has chosen to be readable.
var styles = map[level]lipgloss.Style{
	levelQuiet:  lipgloss.NewStyle().Faint(true),
	levelBusy:   lipgloss.NewStyle(),
	levelWarn:   lipgloss.NewStyle().Foreground(lipgloss.Yellow),
	levelUrgent: lipgloss.NewStyle().Foreground(lipgloss.Red).Bold(true),
}

var (
	headStyle   = lipgloss.NewStyle().Bold(true)
	activeStyle = lipgloss.NewStyle().Bold(true).Reverse(true)
	titleStyle  = lipgloss.NewStyle().Faint(true)
)

// A plan is the number of rows for each list.
type plan struct {
	notices int
	rows    [panes]int
	flat    bool // only the list with the chosen row is shown
}

// plan divides the lines of the screen. Notices get a fifth, then all lists get what they need. If
// that is too much, the lists without the chosen row get a third.
func (m *model) plan() plan {
	shown := m.shown()
	fixed := 4 + 2*len(shown) // two lines of head, what needs attention, keys; a heading and titles for each list
	p := plan{flat: m.height < fixed+minRows}
	if p.flat {
		p.rows[m.pane] = max(0, m.height-4) // the head, a heading, titles, keys
		return p
	}
	p.notices = min(len(m.notices), max(1, m.height/5))
	room := m.height - fixed - p.notices
	left := room
	give := func(pane, rows int) {
		rows = max(0, min(rows, left, len(m.names(pane))-p.rows[pane]))
		p.rows[pane] += rows
		left -= rows
	}
	for _, pane := range shown {
		if pane != m.pane {
			give(pane, max(1, room/3/(len(shown)-1)))
		}
	}
	give(m.pane, left)
	for _, pane := range shown {
		give(pane, left)
	}
	p.rows[m.pane] += left
	return p
}

// View implements tea.Model.
func (m *model) View() tea.View {
	v := tea.NewView(strings.Join(m.lines(), "\n"))
	v.AltScreen = true
	return v
}

// lines returns the lines of the screen, no wider and no more than fit on it.
func (m *model) lines() []string {
	s := &screen{width: m.width}
	s.add(m.head())
	switch {
	case m.helping:
		m.help(s)
	case m.open:
		m.detail(s)
	default:
		m.lists(s)
	}
	for len(s.lines) < m.height-1 {
		s.add("")
	}
	if last := max(0, m.height-1); len(s.lines) > last {
		s.lines = s.lines[:last] // a question must be visible
	}
	if m.height > 1 || m.asked != "" {
		s.add(m.lastLine())
	} else if m.height == 1 {
		s.add(m.head())
	}
	return s.lines
}

// lists adds notices and all lists.
func (m *model) lists(s *screen) {
	p := m.plan()
	if !p.flat {
		s.add(m.counts(), headStyle)
		s.add(m.attention(p.notices), headStyle)
		for _, n := range m.notices[:p.notices] {
			if n.Urgent {
				s.add("! "+n.Text, styles[levelUrgent])
			} else {
				s.add("- "+n.Text, styles[levelWarn])
			}
		}
	}
	for _, pane := range m.shown() {
		if !p.flat || pane == m.pane {
			m.list(s, pane, p.rows[pane])
		}
	}
}

// A screen collects lines.
type screen struct {
	width int
	lines []string
}

// add adds a line of plain text: control characters are escaped.
func (s *screen) add(text string, style ...lipgloss.Style) {
	text = ansi.Truncate(inert.Line(text), s.width, "…")
	for _, st := range style {
		text = st.Render(text)
	}
	s.lines = append(s.lines, text)
}

// head returns the name of the store and the age of the read.
func (m *model) head() (string, lipgloss.Style) {
	read := time.Time{}
	if m.hasRead {
		read = m.last.Snapshot.ReadAt
	}
	age := show.Span(max(0, m.now.Sub(read)).Truncate(100 * time.Millisecond))
	waits := m.waits()
	style, told := styles[levelUrgent], ""
	switch {
	case read.IsZero() && m.last.Err != "":
		told = fmt.Sprintf("NOTHING WAS READ YET: %s: %s", m.Store, m.last.Err)
	case read.IsZero():
		style, told = headStyle, fmt.Sprintf("reading, for %s, %s", show.Span(waits.Truncate(time.Second)), m.Store)
	case m.last.Err != "":
		told = fmt.Sprintf("THIS IS %s OLD: %s: %s", age, m.Store, m.last.Err)
	case waits >= slowRead:
		told = fmt.Sprintf("THIS IS %s OLD: %s has not answered for %s", age, m.Store,
			show.Span(waits.Truncate(time.Second)))
	default:
		style, told = headStyle, fmt.Sprintf("read %s ago, %s", age, m.Store)
	}
	return "tickslot top: " + told, style
}

// waits returns how long the current read has taken so far; 0: there is none.
func (m *model) waits() time.Duration {
	if m.reading.IsZero() {
		return 0
	}
	return m.now.Sub(m.reading)
}

// silent reports whether the store does not answer.
func (m *model) silent() bool { return m.last.Err != "" || m.waits() >= slowRead }

// counts returns how many timers, hosts and so on there are.
func (m *model) counts() string {
	if !m.hasRead {
		return ""
	}
	timers, hosts, leases := map[string]int{}, map[string]int{}, 0
	for _, t := range m.last.Timers {
		timers[t.State]++
	}
	for _, h := range m.last.Snapshot.Hosts {
		hosts[fleet.HostState(h)]++
	}
	for _, l := range m.last.Snapshot.Leases {
		if l.State == cluster.LeaseHeld {
			leases++
		}
	}
	return fmt.Sprintf("leases held: %d   hosts: %s   timers: %s", leases, sum(hosts), sum(timers))
}

func sum(counts map[string]int) string {
	var parts []string
	for _, state := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[state], state))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

func (m *model) attention(shown int) string {
	switch {
	case len(m.notices) == 0:
		return "NOTHING NEEDS ATTENTION"
	case shown < len(m.notices):
		return fmt.Sprintf("NEEDS ATTENTION %d of %d", shown, len(m.notices))
	}
	return "NEEDS ATTENTION"
}

// list adds a list with the given number of rows.
func (m *model) list(s *screen, pane, rows int) {
	t, levels, heading := [panes]func() (*show.Table, []level, string){m.timerTable, m.handlerTable, m.messageTable,
		m.hostTable}[pane]()
	skipped := min(m.skipped[pane], len(t.Rows))
	until := min(skipped+rows, len(t.Rows))
	if until-skipped < len(t.Rows) {
		heading = fmt.Sprintf("%s, %d to %d of %d", heading, min(skipped+1, until), until, len(t.Rows))
	}
	if m.filter != "" {
		heading += fmt.Sprintf(", with %q", m.filter)
	}
	style := headStyle
	if pane == m.pane {
		style = activeStyle
	}
	s.add(heading, style)
	if len(t.Rows) == 0 {
		s.add("none", titleStyle)
		return
	}
	t.Rows = t.Rows[skipped:until]
	lines, _ := t.Lines(s.width)
	s.add(lines[0], titleStyle)
	for i, line := range lines[1:] {
		style := styles[levels[skipped+i]]
		if pane == m.pane && skipped+i == m.at[pane] {
			style = style.Reverse(true).Faint(false)
		}
		s.add(line, style)
	}
}

func (m *model) timerTable() (t *show.Table, levels []level, heading string) {
	t = &show.Table{Columns: []string{"TIMER", "STATE", "SLOTS", "HOSTS", "LAST RUN", "OUTCOME", "TOOK", "HELD BY",
		"ERROR"}}
	if m.width < wideScreen {
		t.Columns = t.Columns[:8]
	}
	for _, r := range m.timers {
		ago, outcome, took, fault := "", "", "", ""
		if run := r.Last; run != nil {
			ago, outcome, took, fault = m.ago(run.EndedAt), run.Outcome, show.Span(run.Took), run.Err
		}
		row := []string{r.Name, r.State, slots(r), fmt.Sprint(r.Hosts), ago, outcome, took, m.holders(r), fault}
		t.Add(row[:len(t.Columns)]...)
		levels = append(levels, timerLevel(r))
	}
	heading = "TIMERS by " + orderNames[m.order]
	if m.reverse {
		heading += ", reversed"
	}
	return t, levels, heading
}

// slots shows how many slots of a timer are held, and each slot: # if it is held, ! if its holder
// is gone, and a dot if it is free.
func slots(t *fleet.Timer) string {
	n := t.Slots()
	if n < 0 {
		return fmt.Sprintf("%d", len(t.Held))
	}
	text := fmt.Sprintf("%d/%d", len(t.Held), n)
	boxes := []byte(strings.Repeat(".", min(n, maxBoxes)))
	for _, l := range t.Held {
		switch {
		case l.Slot >= len(boxes):
		case l.HostState == cluster.HostSuspect, l.HostState == cluster.HostGone:
			boxes[l.Slot] = '!'
		default:
			boxes[l.Slot] = '#'
		}
	}
	if n == 0 || n > maxBoxes {
		return text
	}
	return text + " " + string(boxes)
}

// holders names the holders of a timer's slots, the longest-held slot first.
func (m *model) holders(t *fleet.Timer) string {
	held := slices.SortedStableFunc(slices.Values(t.Held), func(a, b cluster.Lease) int {
		return a.AcquiredAt.Compare(b.AcquiredAt)
	})
	var names []string
	for _, l := range held[:min(len(held), maxHolders)] {
		names = append(names, l.Holder.Host+" "+m.ago(l.AcquiredAt))
	}
	if more := len(held) - maxHolders; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

func (m *model) hostTable() (t *show.Table, levels []level, heading string) {
	t = &show.Table{Columns: []string{"HOST", "STATE", "SEEN", "UP", "TIMERS", "HELD", "VERSION", "LAST ERROR",
		"ENVIRONMENT", "CLOCK"}}
	if m.width < wideScreen {
		t.Columns = t.Columns[:8]
	}
	held := map[string]int{}
	for _, l := range m.last.snapshotLeases() {
		if l.State == cluster.LeaseHeld {
			held[l.Holder.String()]++
		}
	}
	for _, h := range m.hosts {
		name := h.Holder.String()
		row := []string{name, fleet.HostState(h), m.ago(h.SeenAt), m.ago(h.StartedAt), fmt.Sprint(len(h.Timers)),
			fmt.Sprint(held[name]), h.AppVersion, fleet.HostFault(h), h.Environment, show.Span(h.ClockOffset)}
		t.Add(row[:len(t.Columns)]...)
		levels = append(levels, hostLevel(h))
	}
	return t, levels, "HOSTS"
}

func (r Reading) snapshotLeases() []cluster.Lease {
	if r.Snapshot == nil {
		return nil
	}
	return r.Snapshot.Leases
}

// ago returns how long ago an instant was, in whole seconds, because finer digits would change
// constantly.
func (m *model) ago(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return show.Span(max(0, m.now.Sub(at)).Truncate(time.Second))
}
