// Package httpsink delivers messages of an outbox to an HTTP server.
package httpsink

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/tickslot/tickslot/outbox"
)

// The headers of a request. HeaderOrder is omitted if the message has no key.
const (
	// HeaderKey has the ID of the message in quotes, as in the IETF's
	// draft-ietf-httpapi-idempotency-key-header. It is the same for each attempt.
	HeaderKey = "Idempotency-Key"
	// HeaderID has the ID of the message without quotes.
	HeaderID = outbox.HeaderID
	// HeaderTopic and HeaderOrder have the topic and the key of the message. Bytes that are not
	// allowed in a header are escaped as in a URL.
	HeaderTopic = "Message-Topic"
	HeaderOrder = "Message-Key"
	// HeaderAttempt has the number of the attempt, beginning with 1. An attempt whose relay died
	// may not be counted, so only the ID shows whether a message is new to the receiver.
	HeaderAttempt = "Message-Attempt"
)

// maxErrorLen is the maximum number of bytes of an answer that are kept as an error.
const maxErrorLen = 500

// Options are the settings of a sink. The zero value is fine.
type Options struct {
	// Client sends the requests. It needs no time-out, because a request ends with the context of
	// its delivery: see outbox.RelayConfig.DeliverTimeout. The sink does not follow redirects,
	// which would turn a POST into a GET. Default http.DefaultClient.
	Client *http.Client

	// Header has headers for every request, such as Authorization. They are not stored in the
	// database, and a message cannot replace them. Default: Content-Type application/octet-stream,
	// which a message can replace.
	Header http.Header

	// Method is the method of the requests. Default POST.
	Method string
}

// New returns a sink that sends the payload of each message to a URL, with the headers of this
// package, those of Options, and those of the message. If a header is invalid in HTTP, each attempt
// fails. If the URL is empty or invalid, outbox.NewRelay returns an error. All other headers of a
// message pass through, including Cookie and X-Forwarded-For. So any producer that can append
// messages can send requests to the server with the permissions of the relay. Errors are stored
// with each attempt. They name only the host of the URL, because the path or the query of a webhook
// contains its secret.
//
// An answer of 2xx is a success. After 401, 403, 404, 407, 408, 421, 425, 429, 3xx and 5xx, and if
// there is no answer, the message is delivered again, because the server or the address may be
// fixed without changing the message. It waits for as long as Retry-After says. With any other
// answer, the server has refused the message itself, and the message is dead immediately.
func New(address string, options Options) outbox.Sink {
	s := sink{header: options.Header, method: cmp.Or(options.Method, http.MethodPost)}
	s.client = *cmp.Or(options.Client, http.DefaultClient)
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	var err error
	if s.url, err = url.Parse(address); err != nil || s.url.Host == "" {
		s.fault = errors.New("httpsink: the URL of the sink is invalid: it needs a scheme and a host, as in " +
			"https://example.com/hook")
		if address == "" {
			s.fault = errors.New("httpsink: the URL of the sink is empty: check whether the setting that it comes " +
				"from is set")
		}
	}
	return &s
}

type sink struct {
	url    *url.URL
	fault  error // fault of the URL
	method string
	header http.Header
	client http.Client
}

// Validate implements outbox.Validator.
func (s *sink) Validate() error { return s.fault }

// Deliver implements outbox.Sink.
func (s *sink) Deliver(ctx context.Context, d outbox.Delivery) error {
	if s.fault != nil {
		return s.fault
	}
	request, err := http.NewRequestWithContext(ctx, s.method, s.url.String(), bytes.NewReader(d.Payload))
	if err != nil {
		return s.failed(err)
	}
	request.Header.Set("Content-Type", "application/octet-stream")
	for name, value := range d.Headers {
		request.Header.Set(name, value)
	}
	for name, values := range s.header {
		request.Header[http.CanonicalHeaderKey(name)] = values
	}
	id := d.ID.String()
	request.Header.Set(HeaderKey, `"`+id+`"`)
	request.Header.Set(HeaderID, id)
	request.Header.Set(HeaderTopic, escaped(d.Topic))
	request.Header.Del(HeaderOrder) // a message without a key has none
	if d.Key != "" {
		request.Header.Set(HeaderOrder, escaped(d.Key))
	}
	request.Header.Set(HeaderAttempt, strconv.Itoa(d.Attempt))
	response, err := s.client.Do(request)
	if err != nil {
		return s.failed(err)
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, maxErrorLen))
	return result(response, text)
}

// failed returns the error of a request without an answer. It replaces the error of package http,
// which contains the whole URL.
func (s *sink) failed(err error) error {
	if of, ok := errors.AsType[*url.Error](err); ok {
		err = of.Err
	}
	return fmt.Errorf("httpsink: %s %s: %w", s.method, s.url.Host, err)
}

// result returns nil if the answer is a success. Otherwise, it returns an error with the mark that
// the answer requires.
func result(response *http.Response, text []byte) error {
	code := response.StatusCode
	if code/100 == 2 {
		return nil
	}
	err := fmt.Errorf("httpsink: %s", response.Status)
	if len(text) > 0 {
		err = fmt.Errorf("httpsink: %s: %q", response.Status, text)
	}
	switch code {
	case 401, 403, 404, 407, 408, 421, 425, 429:
	default:
		if code/100 == 4 {
			return outbox.Permanent(err)
		}
	}
	if wait, ok := retryAfter(response.Header.Get("Retry-After")); ok {
		return outbox.RetryAfter(wait, err)
	}
	return err
}

// retryAfter parses the header Retry-After, which is a number of seconds or a date.
func retryAfter(text string) (wait time.Duration, ok bool) {
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at)), true
	}
	return 0, false
}

// escaped returns a text in which the bytes that are not allowed in a header are escaped.
func escaped(text string) string {
	const hex = "0123456789ABCDEF"
	var b []byte
	for i := range len(text) {
		if c := text[i]; c > ' ' && c < 0x7f && c != '%' {
			b = append(b, c)
		} else {
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(b)
}
