package tickslotwatermill_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	tickslotwatermill "github.com/tickslot/tickslot/contrib/watermill"
	"github.com/tickslot/tickslot/outbox"
)

// Fails when a subscriber does not receive an appended message, or when an error of the publisher
// counts as a success.
func TestSink(t *testing.T) {
	t.Parallel()
	channel := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 1}, watermill.NopLogger{})
	messages, err := channel.Subscribe(t.Context(), "to invoice.create")
	if err != nil {
		t.Fatal(err)
	}
	sink := tickslotwatermill.New(channel, tickslotwatermill.Options{Topic: func(s string) string { return "to " + s }})
	d := outbox.Delivery{Message: outbox.Message{ID: outbox.NewID("order-42", 1, 0), Topic: "invoice.create", Key: "k",
		Payload: []byte("hello"), Headers: map[string]string{"traceparent": "00"}}}
	if err := sink.Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	m := <-messages
	m.Ack()
	if m.UUID != d.ID.String() || string(m.Payload) != "hello" || m.Metadata.Get("traceparent") != "00" ||
		m.Metadata.Get(tickslotwatermill.MetadataKey) != "k" ||
		m.Metadata.Get(tickslotwatermill.MetadataTopic) != "invoice.create" {
		t.Errorf("%s %q %v", m.UUID, m.Payload, m.Metadata)
	}
	if err := channel.Close(); err != nil {
		t.Fatal(err)
	}
	if err := sink.Deliver(t.Context(), d); err == nil {
		t.Error("a closed publisher has taken a message")
	}
	if err := tickslotwatermill.New(nil, tickslotwatermill.Options{}).Deliver(t.Context(), d); err == nil {
		t.Error("no publisher has taken a message")
	}
}
