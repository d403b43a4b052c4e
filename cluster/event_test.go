package cluster_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster"
)

// A change made by an operator appears in the history of every host within about a second, with the
// operator's name. Two identical changes are two events.
//
// Fails when events without an ID share one, and when a text is not cut to the length that a store
// accepts.
func TestRecordEvent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t)
		a, b := f.start(cluster.Config{}), f.start(cluster.Config{})
		for range 2 {
			a.RecordEvent(cluster.Event{Kind: cluster.EventOperator, Name: "timer:report", Slot: -1,
				Text: "paused by ann\x1b[31m " + strings.Repeat("x", 1000), Ago: time.Second})
		}
		time.Sleep(2 * time.Second)
		found := b.events(cluster.EventOperator)
		if len(found) != 2 || found[0].Holder != a.Holder() || found[0].Slot != -1 || len(found[0].Text) > 500 ||
			!strings.HasPrefix(found[0].Text, "paused by ann [31m") {
			t.Errorf("%+v", found)
		}
		f.end()
	})
}
