package outbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/tickslot/tickslot/outbox/internal/store"
)

const (
	// MaxPayloadLen is the maximum length of a payload in bytes. Keep larger data in a table or a
	// file, and put its name into the payload.
	MaxPayloadLen = 1 << 20
	// MaxNameLen is the maximum length in bytes of a topic, a key, or the name of a consumer.
	MaxNameLen = 200
	// MaxAppend is the maximum number of messages in one AppendMany. MaxAppendLen is the maximum
	// total length in bytes of their payloads and headers.
	MaxAppend    = 10_000
	MaxAppendLen = 64 << 20
	// MaxHeadersLen is the maximum total length in bytes of a message's headers.
	MaxHeadersLen = 16 << 10
)

// HeaderID is the header with which sinks pass on the ID of a message, so that the receiver can
// drop duplicates.
const HeaderID = "Message-Id"

// An ID is a UUID that identifies a message. A receiver drops messages whose ID it has already
// processed.
type ID [16]byte

// String returns the ID in the usual form: "f81d4fae-7dec-11d0-a765-00a0c91e6bf6".
func (i ID) String() string { return uuid.UUID(i).String() }

// ParseID parses an ID in the form that String returns.
func ParseID(text string) (ID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return ID{}, fmt.Errorf("outbox: %.80q is not a message ID: %w", text, err)
	}
	return ID(id), nil
}

// MarshalText implements encoding.TextMarshaler with String.
func (i ID) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler with ParseID.
func (i *ID) UnmarshalText(text []byte) (err error) {
	*i, err = ParseID(string(text))
	return err
}

// namespace is the namespace of all IDs that NewID returns. It must never change.
var namespace = uuid.MustParse("6b2ac5f1-4b1f-5d0e-9f0b-8a7f4c5a3e21")

// NewID returns the ID of the message with the given index among the messages that a source, such
// as "order-42", has produced at the given version of its state. The same arguments give the same
// ID, so that a producer that repeats its work after a crash appends nothing twice. Another source,
// version or index gives another ID.
//
// The ID is a UUID of version 5 (RFC 9562), with the namespace
// 6b2ac5f1-4b1f-5d0e-9f0b-8a7f4c5a3e21, over the source, the version and the index as decimal
// numbers, each as its length in bytes, a colon, and the bytes: "8:order-42" + "1:7" + "1:0". The
// comment of this package has test vectors for programs in other languages.
func NewID(source string, version uint64, index int) ID {
	var name []byte
	for _, field := range []string{source, strconv.FormatUint(version, 10), strconv.Itoa(index)} {
		name = strconv.AppendInt(name, int64(len(field)), 10)
		name = append(name, ':')
		name = append(name, field...)
	}
	return ID(uuid.NewSHA1(namespace, name))
}

// RandomID returns a random, unique ID, for a message that its producer never appends again.
func RandomID() ID { return ID(uuid.New()) }

// A Message is appended by a producer and delivered by a sink.
type Message struct {
	// ID is required: see NewID and RandomID.
	ID ID
	// Topic is the kind of the message and selects its sink. Required.
	Topic string
	// Key groups messages that are delivered in order. An example is "order-42". Default "": no
	// order.
	Key string
	// Payload has at most MaxPayloadLen bytes. The outbox does not interpret it.
	Payload []byte
	// Headers are passed on with the message, for example a trace context. They are stored
	// unencrypted, so keep credentials in the sink (httpsink.Options.Header), not here.
	Headers map[string]string
}

// A Delivery is a message with details of the attempt for its sink.
type Delivery struct {
	Message
	// Seq is the number of the message's row. It grows with the messages of a key and is the same
	// for all attempts.
	Seq int64
	// Attempt is 1 for the first attempt.
	Attempt int
	// Age is how long ago the message was appended.
	Age time.Duration
}

// check returns what is wrong with a message.
func (m Message) check() error {
	var errs []error
	fault := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: "+format, append([]any{field}, args...)...))
	}
	if m.ID == (ID{}) {
		fault("ID", "it is zero: use NewID or RandomID")
	}
	if m.Topic == "" {
		fault("Topic", "it is empty")
	}
	checkText(m.Topic, "Topic", fault)
	checkText(m.Key, "Key", fault)
	if n := len(m.Payload); n > MaxPayloadLen {
		errs = append(errs, fmt.Errorf("%w: the payload has %d bytes, and at most %d are allowed", ErrTooLong,
			n, MaxPayloadLen))
	}
	for name, value := range m.Headers {
		if name == "" {
			fault("Headers", "a name is empty")
		}
		if !utf8.ValidString(name) || !utf8.ValidString(value) || hasNUL(name) || hasNUL(value) {
			fault("Headers", "%.60q: names and values are text in UTF-8 without NUL", name)
		}
	}
	if total := m.headersLen(); total > MaxHeadersLen {
		errs = append(errs, fmt.Errorf("%w: the headers have %d bytes, and at most %d are allowed", ErrTooLong,
			total, MaxHeadersLen))
	}
	return errors.Join(errs...)
}

// headersLen returns the total length of the headers in bytes.
func (m Message) headersLen() (total int) {
	for name, value := range m.Headers {
		total += len(name) + len(value)
	}
	return total
}

// checkText reports a fault if not every database stores the text unchanged.
func checkText(text, field string, fault func(field, format string, args ...any)) {
	switch {
	case len(text) > MaxNameLen:
		fault(field, "it has %d bytes, and at most %d are allowed", len(text), MaxNameLen)
	case !utf8.ValidString(text) || hasNUL(text):
		fault(field, "%.60q: use text in UTF-8 without NUL", text)
	}
}

func hasNUL(text string) bool {
	for i := range len(text) {
		if text[i] == 0 {
			return true
		}
	}
	return false
}

// row returns the message's row in the database.
func (m Message) row() store.Message {
	return store.Message{ID: store.ID(m.ID), Topic: m.Topic, Key: m.Key, Hash: m.hash(), Payload: m.Payload,
		Headers: m.Headers}
}

// hash returns the number that determines the shard. It is stored, so it must never change.
func (m Message) hash() uint32 {
	if m.Key == "" {
		return binary.BigEndian.Uint32(m.ID[:4])
	}
	return crc32.ChecksumIEEE([]byte(m.Key))
}

func fromStored(m store.Message) Message {
	return Message{ID: ID(m.ID), Topic: m.Topic, Key: m.Key, Payload: m.Payload, Headers: m.Headers}
}
