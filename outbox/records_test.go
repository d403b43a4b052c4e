package outbox_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/outbox"
)

// Who deletes or requeues what was found, when nothing was, changes nothing, whatever else the
// filter says.
//
// Fails when a list of IDs that is empty, and not nil, means all messages.
func TestAnEmptyListOfIDsIsNotAll(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		f.fail = func(outbox.Delivery) error { return outbox.Reject(errReceiver) }
		ids := f.appendTo("orders", "a", 2)
		stop := f.relay(outbox.RelayConfig{})
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		for field, which := range map[string]outbox.Filter{"none": {}, "topic": {Topic: "orders"}, "key": {Key: "a"},
			"from": {CreatedFrom: time.Now().Add(-time.Hour)}, "until": {CreatedUntil: time.Now().Add(time.Hour)}} {
			which.IDs = []outbox.ID{}
			_, listed := f.box.Messages(t.Context(), which, 10)
			_, requeued := f.box.Requeue(t.Context(), which, outbox.RequeueOptions{})
			_, deleted := f.box.Delete(t.Context(), which)
			for call, err := range map[string]error{"Messages": listed, "Requeue": requeued, "Delete": deleted} {
				if err == nil || !strings.Contains(err.Error(), "IDs is empty: leave it nil") {
					t.Errorf("%s with no ID, and another field (%s): %v", call, field, err)
				}
			}
		}
		dead, err := f.box.Messages(t.Context(), outbox.Filter{Topic: "orders", State: outbox.StateDead}, 10)
		if err != nil || len(dead) != len(ids) {
			t.Errorf("%d messages are dead, want %d: %v", len(dead), len(ids), err)
		}
	})
}
