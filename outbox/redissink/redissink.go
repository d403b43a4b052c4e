// Package redissink adds messages of an outbox to Redis streams.
//
// Its Redis user needs permission only for XADD and for the names of the streams:
//
//	ACL SETUSER relay on >secret resetchannels resetkeys ~outbox:* -@all +xadd
//
// If one of these permissions is missing, a delivery fails with an error that says so, and is tried
// again.
package redissink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/outbox"
)

// The fields of an entry. FieldKey and FieldHeaders are omitted if the message has none.
const (
	FieldID      = "id" // with it, readers drop duplicates
	FieldTopic   = "topic"
	FieldKey     = "key"
	FieldPayload = "payload"
	FieldHeaders = "headers" // a JSON object
	FieldAttempt = "attempt" // begins with 1
)

// Options are the settings of a sink. The zero value is fine.
type Options struct {
	// Stream returns the name of the stream for a topic. Default nil: "outbox:" and the topic.
	Stream func(topic string) string

	// MaxLen is the approximate number of entries that a stream keeps. Older entries are deleted,
	// whether or not they were read. Default 0: all entries are kept.
	MaxLen int64
}

// New returns a sink that adds each message to the stream of its topic in one round trip. The
// stream has the messages of a key in order. If an answer was lost, the stream has the message
// twice, with the same FieldID.
func New(client redis.UniversalClient, options Options) outbox.Sink {
	return outbox.SinkFunc(func(ctx context.Context, d outbox.Delivery) error {
		if client == nil {
			return errors.New("redissink: there is no client")
		}
		stream := "outbox:" + d.Topic
		if options.Stream != nil {
			stream = options.Stream(d.Topic)
		}
		values := []any{FieldID, d.ID.String(), FieldTopic, d.Topic, FieldPayload, d.Payload, FieldAttempt,
			strconv.Itoa(d.Attempt)}
		if d.Key != "" {
			values = append(values, FieldKey, d.Key)
		}
		if len(d.Headers) > 0 {
			headers, err := json.Marshal(d.Headers)
			if err != nil {
				return outbox.Permanent(fmt.Errorf("redissink: %w", err))
			}
			values = append(values, FieldHeaders, headers)
		}
		entry := &redis.XAddArgs{Stream: stream, MaxLen: options.MaxLen, Approx: true, Values: values}
		if err := client.XAdd(ctx, entry).Err(); err != nil {
			return fmt.Errorf("redissink: stream %q: %w", stream, err)
		}
		return nil
	})
}
