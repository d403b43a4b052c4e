// Package tickslotwatermill delivers messages of an outbox to any publisher of Watermill
// (github.com/ThreeDotsLabs/watermill), and thereby to Kafka, NATS, AMQP, SNS, and others.
//
// It is a separate module, so that programs without it do not link Watermill.
package tickslotwatermill

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/tickslot/tickslot/outbox"
)

// Metadata of a Watermill message, in addition to the headers of the outbox message.
const (
	// MetadataKey is the message's key, for publishers that partition a topic by it (for Kafka:
	// kafka.NewWithPartitioningMarshaler). It is omitted if the message has no key.
	MetadataKey = "message_key"
	// MetadataTopic is the message's topic in the outbox.
	MetadataTopic = "message_topic"
)

// Options are the settings of a sink. The zero value is valid.
type Options struct {
	// Topic returns the publisher's topic for a topic of the outbox. Default nil: the same topic.
	Topic func(topic string) string
}

// New returns a sink that publishes each message. The message's ID is the UUID of the Watermill
// message, so that the receiver can drop duplicates.
//
// A publisher that ignores the context of a message may continue after the delivery has ended. Use
// a publisher that returns only when the broker has stored the message: a message that is only
// queued in the process is lost when the process dies.
func New(publisher message.Publisher, options Options) outbox.Sink {
	return outbox.SinkFunc(func(ctx context.Context, d outbox.Delivery) error {
		if publisher == nil {
			return errors.New("tickslotwatermill: there is no publisher")
		}
		m := message.NewMessage(d.ID.String(), d.Payload)
		m.SetContext(ctx)
		for name, value := range d.Headers {
			m.Metadata.Set(name, value)
		}
		m.Metadata.Set(MetadataTopic, d.Topic)
		if d.Key != "" {
			m.Metadata.Set(MetadataKey, d.Key)
		}
		topic := d.Topic
		if options.Topic != nil {
			topic = options.Topic(d.Topic)
		}
		if err := publisher.Publish(topic, m); err != nil {
			return fmt.Errorf("tickslotwatermill: topic %q: %w", topic, err)
		}
		return nil
	})
}
