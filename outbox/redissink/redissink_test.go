package redissink_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/redissink"
	"github.com/tickslot/tickslot/proof/redistest"
	"github.com/tickslot/tickslot/proof/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// Fails when entries of the stream lack a field that a reader needs, or when their order differs
// from the order of the messages.
func TestStream(t *testing.T) {
	t.Parallel()
	redistest.Require(t)
	client := redis.NewClient(&redis.Options{Addr: redistest.Shared(t).Addr(), Password: servertest.Canary})
	t.Cleanup(func() { client.Close() })
	stream := "stream:" + t.Name()
	sink := redissink.New(client, redissink.Options{Stream: func(topic string) string { return stream + topic }})
	var sent []outbox.Delivery
	for i := range 3 {
		d := outbox.Delivery{Message: outbox.Message{ID: outbox.NewID("a", 1, i), Topic: "größe", Key: "k",
			Payload: []byte{0, 0xff, byte(i)}, Headers: map[string]string{"traceparent": "00\n"}}, Attempt: i + 1}
		if err := sink.Deliver(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		sent = append(sent, d)
	}
	entries, err := client.XRange(t.Context(), stream+"größe", "-", "+").Result()
	if err != nil || len(entries) != 3 {
		t.Fatal(entries, err)
	}
	for i, e := range entries {
		d, v := sent[i], e.Values
		headers := map[string]string{}
		if err := json.Unmarshal([]byte(v[redissink.FieldHeaders].(string)), &headers); err != nil {
			t.Fatal(err)
		}
		if v[redissink.FieldID] != d.ID.String() || v[redissink.FieldTopic] != d.Topic ||
			v[redissink.FieldKey] != d.Key || v[redissink.FieldPayload] != string(d.Payload) ||
			headers["traceparent"] != "00\n" {
			t.Errorf("entry %d: %v", i, v)
		}
	}
	client.Close()
	if err := sink.Deliver(t.Context(), sent[0]); err == nil {
		t.Error("delivered without a connection")
	}
	if err := redissink.New(nil, redissink.Options{}).Deliver(t.Context(), sent[0]); err == nil {
		t.Error("delivered without a client")
	}
}

// The permissions in the package documentation are enough. If one is missing, the error says so.
//
// Fails when a delivery needs another command.
func TestRights(t *testing.T) {
	t.Parallel()
	redistest.Require(t)
	server := redistest.New(t)
	source, err := os.ReadFile("redissink.go")
	if err != nil {
		t.Fatal(err)
	}
	said := regexp.MustCompile(`ACL SETUSER relay (.*)`).FindSubmatch(source)
	if said == nil {
		t.Fatal("the documentation lists no rights")
	}
	set := func(rules string) {
		t.Helper()
		args := []any{"ACL", "SETUSER", "relay"}
		for rule := range strings.FieldsSeq(strings.Replace(rules, ">secret", ">"+servertest.Canary, 1)) {
			args = append(args, rule)
		}
		if err := server.Client().Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set(string(said[1]))
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "relay", Password: servertest.Canary})
	t.Cleanup(func() { client.Close() })
	sink := redissink.New(client, redissink.Options{MaxLen: 10})
	deliver := func(topic string) error {
		return sink.Deliver(t.Context(), outbox.Delivery{Message: outbox.Message{ID: outbox.RandomID(), Topic: topic}})
	}
	if err := deliver("orders"); err != nil {
		t.Errorf("with the documented rights: %v", err)
	}
	for _, less := range []string{"-xadd", "resetkeys ~other:*"} {
		set(less)
		if err := deliver("orders"); err == nil || !strings.Contains(err.Error(), "NOPERM") ||
			strings.Contains(err.Error(), servertest.Canary) {
			t.Errorf("%s: %v", less, err)
		}
		set(string(said[1]))
	}
}
