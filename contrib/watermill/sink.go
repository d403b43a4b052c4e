// Package tickslotwatermill delivers messages of an outbox to any publisher of Watermill
// (github.com/ThreeDotsLabs/watermill), and with it to Kafka, NATS, AMQP, SNS, and others.
//
// It is a module of its own, so that programs without it do not link Watermill.
package tickslotwatermill

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/tickslot/tickslot/outbox"
)

// The metadata of a message, beside the headers of the one in the outbox.
const (
	// MetadataKey is the key of the message, for publishers that divide a topic by it (of Kafka,
	// kafka.NewWithPartitioningMarshaler). Left out if there is none.
	MetadataKey = "message_key"
	// MetadataTopic is its topic.
	MetadataTopic = "message_topic"
)

// Options are the settings of a sink. The zero value is fine.
type Options struct {
	// Topic returns the publisher's topic for a topic of the outbox. Default nil: the same topic.
	Topic func(topic string) string
}

// New returns a sink that publishes each message, with the ID of the one in the outbox as its UUID,
// by which the receiver can drop duplicates.
//
// A publisher that does not look at the context of a message may go on after the delivery has
// ended. Use publishers that return when the broker has the message: of one that only queues it,
// the message is lost with the process.
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
