package browsertest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster/page"
	"github.com/tickslot/tickslot/internal/testkit"
)

func contains(text, part string) bool { return strings.Contains(text, part) }

// shown is how long a change in the store may take to be on an open page: a read is shared for a
// second, the page is sent again every 2 s (page.Config.RefreshInterval), and the browser draws it.
const shown = time.Second + 2*time.Second + time.Second

// stateOf is the state in the row of a host, and "" if there is no row.
func stateOf(host string) string {
	return fmt.Sprintf(`((Array.from(document.querySelectorAll("tbody tr")).find(r => r.innerText.startsWith(%q)) ||
		{querySelector: () => null}).querySelector(".state")?.innerText || "")`, host)
}

// A host that was killed (kill -9) is suspect first, then gone, for who looks at another one; its
// leases have ended within a TTL of its last heartbeat, and the overview says who is missing.
//
// Fails when the hosts page does not follow, or when the overview leaves out who has gone without a
// word.
func TestAHostThatIsKilled(t *testing.T) {
	testkit.Long(t)
	onEach(t, func(t *testing.T, f *fleet) {
		newTab := browse(t)
		hosts, leases := newTab(wide), newTab(wide)
		leader := list(f.json(0, "leaders"), "leases")[0]["holder"].(string)
		victim := int(leader[len("host-")] - '1')
		viewed := (victim + 1) % 3
		hosts.visit(f.url(viewed, "hosts"))
		hosts.becomes("it is alive", stateOf(leader)+` === "alive"`)
		leases.visit(f.url(viewed, page.URL("leases", "host", leader, "state", "held")))
		leases.becomes("it holds leases", `document.querySelectorAll("tbody tr").length > 0`)

		eval[int](hosts, `window.seen = []; setInterval(() => {
			const state = `+stateOf(leader)+`;
			if (window.seen.at(-1) !== state) window.seen.push(state);
		}, 20)`)
		late := testkit.MeasureLateness(t, 10*time.Millisecond)
		began := time.Now()
		if err := f.hosts[victim].Kill(); err != nil {
			t.Fatal(err)
		}
		leases.becomes("its leases have ended", `document.querySelectorAll("tbody tr").length === 0`)
		took, busy := time.Since(began), late.Since(began)
		if took > ttl+shown+busy {
			t.Errorf("its leases are on the page for %v: must be gone after a TTL and %v", took, shown+busy)
		}
		t.Logf("its leases were on the page for %v", took)
		hosts.becomes("it is gone", `window.seen.at(-1) === "gone"`)
		if seen := eval[[]string](hosts, "window.seen"); !slices.Equal(seen, []string{"alive", "suspect", "gone"}) {
			t.Errorf("a viewer has seen it %v", seen)
		}
		hosts.visit(f.url(viewed, ""))
		hosts.sees(leader + " is gone without having stopped in good order: its last heartbeat was ")
		hosts.becomes("another one leads", fmt.Sprintf(`document.body.innerText.includes("%s is led by host-") &&
			!document.body.innerText.includes("led by %s")`, rolePlanner, leader))
	})
}

// While the store stands still, and when it is dead, the page says so to viewers, and shows what
// was read last, with its age; when the store is back, all is as it was, without a reload.
//
// Fails when a page waits for the store, when what was read last is not shown, and when the stream
// ends because of an error.
func TestAStoreThatIsDown(t *testing.T) {
	testkit.Long(t)
	onEach(t, func(t *testing.T, f *fleet) {
		b := browse(t)(wide)
		b.visit(f.url(0, "hosts"))
		for i := range f.hosts {
			b.sees(fmt.Sprintf("host-%d/", i+1))
		}
		if err := f.store.Pause(); err != nil {
			t.Fatal(err)
		}
		b.isDown()
		if err := f.store.Resume(); err != nil {
			t.Fatal(err)
		}
		b.becomes("the store is back", `!document.body.innerText.includes("A store does not answer")`)
		if err := f.store.Kill(); err != nil {
			t.Fatal(err)
		}
		b.isDown()
		b.visit(f.url(0, ""))
		b.becomes("it is said first", `/answer/.test(document.querySelector("#bar .outage").innerText)`)
		b.visit(f.url(0, page.URL("timer", "name", timerReport)))
		b.sees("A store does not answer")
		b.sees("Next ticks")
	})
}

// isDown waits until the page of hosts says that the store is down, with an age that grows, and
// still has the hosts.
func (b *tab) isDown() {
	b.t.Helper()
	b.sees("A store does not answer")
	b.becomes("it is not said to be live", `document.getElementById("live").innerText.startsWith("Stale")`)
	b.becomes("its age is told, and grows", `/Stale, [12]0 s/.test(document.getElementById("bar").innerText)`)
	b.sees("This is as of ")
	for i := range 3 {
		if !eval[bool](b, fmt.Sprintf(`document.body.innerText.includes("host-%d/")`, i+1)) {
			b.t.Errorf("host-%d is not shown any more", i+1)
		}
	}
}
