package torture

import (
	"reflect"
	"testing"
	"time"
)

// Fails when a second warning for one change, or a lease lost because of the registry alone, is not
// found, or is reported where there is none.
func TestExamineRegistry(t *testing.T) {
	fails := func(host string, at int64) Line { return Line{Kind: RegistryFails, Host: host, At: at * ms} }
	works := func(host string, at int64) Line { return Line{Kind: RegistryWorks, Host: host, At: at * ms} }
	broken := func(host string, from, to int64) Line {
		return Line{Kind: RegistryBroken, Host: "tormentor", Target: host, First: from * ms, Last: to * ms, At: to * ms}
	}
	lost := func(at int64) Line { return Line{Kind: LeaseEnd, Host: "h", Timer: "a", At: at * ms} }
	status := func(at int64) Line { return Line{Kind: Status, Host: "h", At: at * ms} }
	for _, c := range []struct {
		name  string
		lines []Line
		want  Figures
	}{
		{"a warning for each change", []Line{fails("h", 10), works("h", 20), fails("h", 30), fails("i", 31)},
			Figures{Warnings: 3}},
		{"a second warning for one change", []Line{fails("h", 10), works("i", 15), fails("h", 20)},
			Figures{Warnings: 2, WarnedTwice: 1}},
		{"two warnings while no call can go well", []Line{broken("", 100, 1500), fails("h", 500), works("h", 600),
			fails("h", 700), fails("i", 700)}, Figures{Warnings: 3, WarnedTwice: 1}},
		{"one from before", []Line{broken("", 100, 1500), fails("h", 90), works("h", 390), fails("h", 700)},
			Figures{Warnings: 2}},
		{"where the registry of another host is broken", []Line{broken("i", 100, 1500), fails("h", 500),
			works("h", 600), fails("h", 700)}, Figures{Warnings: 2}},
		{"a lease lost in the calm", []Line{lost(6000)}, Figures{LeasesLost: 1, LostByRegistry: 1}},
		{"one lost before, and one after", []Line{lost(4999), lost(8001)}, Figures{LeasesLost: 2}},
		{"one lost by a host that got no processor", []Line{status(5000), status(5500), lost(6000)},
			Figures{LeasesLost: 1, LostToSlowness: 1}},
		{"one lost when the store was slow", []Line{{Kind: Slow, Host: "h", First: 3990 * ms, Last: 4000 * ms,
			At: 4000 * ms}, lost(6000)},
			Figures{LeasesLost: 1, LostToSlowness: 1}},
		{"one lost when it was slow for another", []Line{{Kind: Slow, Host: "i", First: 3990 * ms, Last: 4000 * ms,
			At: 4000 * ms}, lost(6000)}, Figures{LeasesLost: 1, LostByRegistry: 1}},
		{"one lost long after", []Line{{Kind: Slow, Host: "h", First: 3990 * ms, Last: 3999 * ms, At: 4000 * ms},
			lost(6000)}, Figures{LeasesLost: 1, LostByRegistry: 1}},
		{"one lost by a host that did", []Line{status(5000), status(5100), lost(6000)},
			Figures{LeasesLost: 1, LostByRegistry: 1}},
	} {
		lines := append(born(), c.lines...)
		lines = append(lines, seen("h", 1, 0, 1, 7000, 7001)) // so that no timer is silent
		c.want.Runs = 1
		got := Examine(lines, Rules{TTL: time.Second, Settled: 5000 * ms, CalmUntil: 8000 * ms})
		if broken := got.Violations() > 0; broken != (len(got.Examples) > 0) {
			t.Errorf("%s: %d violations and %d examples", c.name, got.Violations(), len(got.Examples))
		}
		got.Examples, got.Ticks, got.NReachedShare = nil, 0, 0
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n%+v, want\n%+v", c.name, got, c.want)
		}
	}
}
