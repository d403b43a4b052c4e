package httpsink_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tickslot/tickslot/outbox"
	"github.com/tickslot/tickslot/outbox/httpsink"
)

var message = outbox.Delivery{Message: outbox.Message{ID: outbox.NewID("order-42", 7, 0), Topic: "größe 😀",
	Key: "a\nb", Payload: []byte("hello"), Headers: map[string]string{"traceparent": "00-1", "authorization": "mine"}},
	Attempt: 3}

// Fails when a request lacks a header that the server needs to drop duplicates, or when a message
// can replace the headers that identify the relay.
func TestRequest(t *testing.T) {
	t.Parallel()
	var got *http.Request
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		w.WriteHeader(http.StatusAccepted)
	}))
	defer server.Close()
	sink := httpsink.New(server.URL, httpsink.Options{Header: http.Header{"Authorization": {"Bearer x"}}})
	if err := sink.Deliver(t.Context(), message); err != nil {
		t.Fatal(err)
	}
	topic, _ := url.PathUnescape(got.Header.Get(httpsink.HeaderTopic))
	key, _ := url.PathUnescape(got.Header.Get(httpsink.HeaderOrder))
	id := message.ID.String()
	if got.Method != "POST" || string(body) != "hello" || got.Header.Get(httpsink.HeaderKey) != strconv.Quote(id) ||
		got.Header.Get(httpsink.HeaderID) != id || topic != message.Topic || key != message.Key ||
		got.Header.Get(httpsink.HeaderAttempt) != "3" || got.Header.Get("Traceparent") != "00-1" ||
		got.Header.Get("Authorization") != "Bearer x" || got.Header.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("%s %q %v", got.Method, body, got.Header)
	}
	bad := message
	bad.Headers = map[string]string{"a b": "x"}
	if err := sink.Deliver(t.Context(), bad); outcome(err) != "transient" {
		t.Errorf("a header that HTTP does not allow: %v", err)
	}
}

// outcome returns the outcome that a relay would store for an error.
func outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, outbox.ErrPermanent):
		return "permanent"
	default:
		return "transient"
	}
}

// Fails when an answer has a meaning that differs from the documentation of New.
func TestAnswers(t *testing.T) {
	t.Parallel()
	code := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(code)
		_, _ = w.Write([]byte("because"))
	}))
	defer server.Close()
	sink := httpsink.New(server.URL, httpsink.Options{})
	for want, codes := range map[string][]int{
		"ok":        {200, 201, 202, 299},
		"permanent": {400, 402, 405, 406, 409, 410, 413, 415, 422, 451},
		"transient": {301, 302, 303, 307, 308, 401, 403, 404, 407, 408, 421, 425, 429, 500, 502, 503, 504, 599},
	} {
		for _, code = range codes {
			if err := sink.Deliver(t.Context(), message); outcome(err) != want {
				t.Errorf("%d: %v, want %s", code, err, want)
			}
		}
	}
	server.Close()
	if err := sink.Deliver(t.Context(), message); outcome(err) != "transient" {
		t.Errorf("no server: %v", err)
	}
	if err := httpsink.New("://", httpsink.Options{}).Deliver(t.Context(), message); outcome(err) != "transient" {
		t.Errorf("no URL: %v", err)
	}
}

// If a URL is empty or invalid, NewRelay returns an error that names the topic.
//
// Fails when NewRelay accepts the URL.
func TestURLThatIsNone(t *testing.T) {
	t.Parallel()
	box := outbox.SQLite(nil, outbox.Options{})
	for url, want := range map[string]string{"": "is empty: check whether the setting",
		"://":              "needs a scheme and a host",
		"example.com/hook": "needs a scheme and a host"} {
		bad := httpsink.New(url, httpsink.Options{})
		for field, config := range map[string]outbox.RelayConfig{
			`Sinks: the sink of topic "orders"`: {Sinks: map[string]outbox.Sink{"orders": bad}},
			"DefaultSink":                       {DefaultSink: bad},
		} {
			_, err := outbox.NewRelay(box, config)
			if text := fmt.Sprint(err); !strings.Contains(text, want) || !strings.Contains(text, "RelayConfig."+field) {
				t.Errorf("%q as %s: %v", url, field, err)
			}
		}
	}
	good := httpsink.New("https://example.com/hook", httpsink.Options{}).(outbox.Validator)
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
}

// answers makes a function an http.RoundTripper.
type answers func(*http.Request) (*http.Response, error)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

// Fails when a server is called again before the wait in its Retry-After is over.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for name, header := range map[string]func(time.Time) string{
		"seconds": func(time.Time) string { return "120" },
		"a date":  func(now time.Time) string { return now.Add(2 * time.Minute).UTC().Format(http.TimeFormat) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client := &http.Client{Transport: answers(func(r *http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: 429, Status: "429", Body: http.NoBody,
						Header: http.Header{"Retry-After": {header(time.Now())}}, Request: r}, nil
				})}
				err := httpsink.New("http://x", httpsink.Options{Client: client}).Deliver(t.Context(), message)
				after, ok := errors.AsType[*outbox.RetryAfterError](err)
				if !ok || after.Wait < 119*time.Second || after.Wait > 120*time.Second {
					t.Errorf("%v, %+v", err, after)
				}
			})
		})
	}
}

// Fails when an error contains the password, the path or the query of a URL, which are the secret
// of a webhook. Errors are stored with the attempt, and appear in log lines and on the page.
func TestErrorsKeepTheSecretOfAURL(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	host := strings.TrimPrefix(gone.URL, "http://")
	for _, address := range []string{"http://user:s3cret@" + host + "/s3cret?token=s3cret",
		"http://user:s3cret@[::1/s3cret?token=s3cret", "s3cret", "https:///s3cret"} {
		err := httpsink.New(address, httpsink.Options{}).Deliver(t.Context(), message)
		if outcome(err) != "transient" || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want a transient error without a secret", address, err)
		}
		if strings.Contains(address, host) && !strings.Contains(err.Error(), host) {
			t.Errorf("%s: %v, want the host", address, err)
		}
	}
}

// Fails when the headers of a message without a key can give it one.
func TestMessageWithoutAKey(t *testing.T) {
	t.Parallel()
	var got http.Header
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }))
	defer server.Close()
	keyless := message
	keyless.Key, keyless.Headers = "", map[string]string{"message-key": "spoofed"}
	if err := httpsink.New(server.URL, httpsink.Options{}).Deliver(t.Context(), keyless); err != nil {
		t.Fatal(err)
	}
	if key, ok := got[httpsink.HeaderOrder]; ok {
		t.Errorf("the key is %q, want none", key)
	}
}
