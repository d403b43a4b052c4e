package top

import (
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/tickslot/tickslot/cmd/tickslot/internal/fleet"
	"github.com/tickslot/tickslot/cmd/tickslot/internal/show"
	"github.com/tickslot/tickslot/internal/inert"
)

// A desk holds the detail, the question and the user's action, separate from the lists.
type desk struct {
	helping bool // the keys are shown

	asked   Action  // waits for confirmation; "" if none
	asks    Subject // subject of the question, because rows may move
	doing   string  // the action in progress; "" if none
	doingAt time.Time
	said    said

	open    bool    // the detail is shown
	subject Subject // of the detail
	text    []string
	fault   string // why the lines are outdated
	readAt  time.Time
	asking  Subject // subject whose detail is being read; zero if none
	above   int     // number of lines scrolled out above
}

// A said is the result of an action.
type said struct {
	text   string
	urgent bool // the action was refused
}

type (
	actedMsg      said
	readDetailMsg int // like readMsg
	detailMsg     struct {
		of    Subject
		lines []string
		err   error
	}
)

// target returns the subject that keys act on: that of the open detail, or of the chosen row.
func (m *model) target() (on Subject, ok bool) {
	if m.open {
		return m.subject, true
	}
	kinds := [panes]Kind{KindTimer, KindHandler, KindMessage, KindHost}
	names := m.names(m.pane)
	if m.at[m.pane] >= len(names) {
		return Subject{}, false
	}
	return Subject{kinds[m.pane], names[m.at[m.pane]]}, true
}

// paused reports whether an operator has paused a timer or a handler.
func (m *model) paused(on Subject) bool {
	if on.Kind == KindTimer {
		return slices.ContainsFunc(m.last.Timers, func(t *fleet.Timer) bool {
			return t.Name == on.Name && t.Pause != nil
		})
	}
	return slices.ContainsFunc(m.work.Handlers, func(h Handler) bool {
		return h.Name == on.Name && h.Paused != ""
	})
}

// act handles a key that concerns a subject.
func (m *model) act(key string) tea.Cmd {
	if key == "?" {
		m.helping = true
		return nil
	}
	on, ok := m.target()
	if !ok {
		return nil
	}
	switch key {
	case "enter":
		if !m.open {
			m.open, m.subject, m.text, m.fault, m.above = true, on, nil, "", 0
			m.readAt = time.Time{}
			return m.readDetail()
		}
	case "p", "t":
		switch {
		case on.Kind != KindTimer && on.Kind != KindHandler:
			m.said = said{key + " is for timers and durable handlers: tab goes to their lists", true}
		case m.doing != "":
			m.said = said{"one thing at a time: wait until the store has answered", true}
		case key == "t":
			m.asked, m.asks = ActionTrigger, on
		case m.paused(on):
			m.asked, m.asks = ActionResume, on
		default:
			m.asked, m.asks = ActionPause, on
		}
	}
	return nil
}

// question returns the question that is asked before anything is written.
func (m *model) question() string {
	what := map[Action]string{
		ActionPause:   "pause %s %s on all hosts for " + show.Span(PauseFor),
		ActionResume:  "end the pause of %s %s",
		ActionTrigger: "have one host run %s %s once, without payload",
	}[m.asked]
	if m.asked == ActionTrigger && m.asks.Kind == KindHandler {
		what = "queue a run of %s %s, without payload"
	}
	return "y or n? " + fmt.Sprintf(what, m.asks.Kind, m.asks.Name)
}

// answer handles the answer to the question. Other keys are ignored.
func (m *model) answer(k tea.KeyPressMsg) tea.Cmd {
	switch k.String() {
	case "n", "esc", "q":
		m.asked, m.said = "", said{"nothing was changed", false}
	case "y":
		action, on := m.asked, m.asks
		m.asked, m.doing, m.doingAt = "", string(action)+" "+string(on.Kind)+" "+on.Name, time.Now()
		return func() tea.Msg {
			done, err := m.Act(m.ctx, action, on)
			if err != nil {
				return actedMsg{err.Error(), true}
			}
			return actedMsg{done, false}
		}
	}
	return nil
}

// acted shows the result of an action and reads its subject again.
func (m *model) acted(msg actedMsg) tea.Cmd {
	m.doing, m.said = "", said(msg)
	return tea.Batch(m.read(), m.readWork(), m.readDetail())
}

// readDetail reads the open detail. If a read is in progress, the next one starts when it ends.
func (m *model) readDetail() tea.Cmd {
	if !m.open || m.asking != (Subject{}) {
		return nil
	}
	of := m.subject
	m.asking = of
	m.reads[loopDetail]++
	return func() tea.Msg {
		lines, err := m.Detail(m.ctx, of)
		return detailMsg{of, lines, err}
	}
}

func (m *model) detailRead(msg detailMsg) tea.Cmd {
	m.asking = Subject{}
	if !m.open || msg.of != m.subject {
		return m.readDetail()
	}
	if m.fault = ""; msg.err != nil {
		m.fault = msg.err.Error()
	} else {
		m.text, m.readAt = msg.lines, time.Now()
	}
	n := m.reads[loopDetail]
	return tea.Tick(m.Interval, func(time.Time) tea.Msg { return readDetailMsg(n) })
}

// detailKey handles a key while a detail is open.
func (m *model) detailKey(k tea.KeyPressMsg) tea.Cmd {
	switch k.String() {
	case "q", "esc":
		m.open = false
	case "ctrl+z":
		return tea.Suspend
	case "up", "k":
		m.above--
	case "down", "j":
		m.above++
	case "pgup":
		m.above -= m.height - detailLines
	case "pgdown", "space":
		m.above += m.height - detailLines
	case "home", "g":
		m.above = 0
	case "end", "G":
		m.above = len(m.wrapped())
	default:
		return m.act(k.String())
	}
	m.above = max(0, min(m.above, len(m.wrapped())-(m.height-detailLines)))
	return nil
}

// maxChosen is the maximum number of characters of the chosen name in the last line.
const maxChosen = 24

// detailLines is the number of lines around a detail: the head, the title, and the keys.
const detailLines = 3

// wrapped returns the lines of the detail, wrapped to the width of the screen.
func (m *model) wrapped() (lines []string) {
	for _, line := range m.text {
		line = ansi.Hardwrap(inert.Line(line), max(1, m.width), true)
		lines = append(lines, strings.Split(line, "\n")...)
	}
	return lines
}

// detail adds the detail of a subject.
func (m *model) detail(s *screen) {
	title := string(m.subject.Kind) + " " + m.subject.Name
	switch {
	case m.fault != "" && m.readAt.IsZero():
		title += ": " + m.fault
	case m.fault != "":
		title += fmt.Sprintf(", THIS IS %s OLD: %s", m.ago(m.readAt), m.fault)
	case m.readAt.IsZero():
		title += ": reading"
	case m.now.Sub(m.readAt) > slowRead+m.Interval:
		title += fmt.Sprintf(", THIS IS %s OLD: no answer", m.ago(m.readAt))
	}
	s.add(title, activeStyle)
	lines := m.wrapped()
	for _, line := range lines[min(max(0, m.above), len(lines)):] {
		s.add(line)
	}
}

// allKeys are the lines of the help.
var allKeys = []string{
	"up, k       the row above           down, j     the row below",
	"pgup        a screen up             pgdown, space  a screen down",
	"home, g     the first row           end, G      the last row",
	"tab         the next list",
	"enter       all that is known of the row",
	"p           pause the timer or the durable handler for " + show.Span(PauseFor) + ", or end its pause",
	"t           trigger the timer, or queue a run of the durable handler",
	"            p and t ask first, and say what was written",
	"s           sort timers by something else      r  the other way round",
	"/           show only names that contain a text",
	"?           these keys",
	"esc         back: from the keys, a question, a detail, the filter; then it leaves",
	"q           leave, or back                     ctrl+c  leave",
}

func (m *model) help(s *screen) {
	s.add("KEYS", activeStyle)
	for _, line := range allKeys {
		s.add(line)
	}
}

// lastLine returns the question, the result of an action, or the keys.
func (m *model) lastLine() (string, lipgloss.Style) {
	switch {
	case m.typing:
		return "show only names with: " + m.filter + "_   (enter keeps it, esc ends it)", titleStyle
	case m.asked != "":
		return m.question(), activeStyle
	case m.said.urgent:
		return "refused: " + m.said.text, styles[levelUrgent]
	case m.said.text != "":
		return m.said.text, headStyle
	case m.doing != "":
		return fmt.Sprintf("%s: no answer yet, for %s", m.doing, m.ago(m.doingAt)), headStyle
	case m.helping, m.open:
		return "q esc back  up down pgup pgdown scroll  p pause  t trigger", titleStyle
	}
	next := [panes]string{"timers", "handlers", "messages", "hosts"}[m.nextPane()]
	text := "q quit  ? keys  / filter  tab " + next
	if on, ok := m.target(); ok {
		text += "  enter " + ansi.Truncate(inert.Line(on.Name), maxChosen, "…") + "  p pause  t trigger"
	}
	return text, titleStyle
}
