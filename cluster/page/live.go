package page

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/tickslot/tickslot/internal/inert"
	"github.com/tickslot/tickslot/internal/mask"
)

const (
	eventStream = "text/event-stream"

	// A stream ends after this time, and the browser asks for the next one. So a user who has lost
	// the right to read gets no more pages, and a stream to a browser that is gone ends.
	streamLifetime = time.Minute
	sendTimeout    = 10 * time.Second
	// maxViewers is how many streams there are. A reader gets no further one when he has as many
	// as are left: so nobody has more than half of them, and others find a place.
	maxViewers = 1000
)

var (
	errClosing        = errors.New("this process is shutting down")
	errTooManyViewers = errors.New("too many look at this page: it does not change by itself, reload it")
	errTooManyStreams = errors.New("you follow too many pages at once: close some")
)

// live sends pages to viewers. It has no goroutine of its own: the requests of all viewers of a
// page share one rendering per interval, made by the first of them that needs it.
type live struct {
	interval time.Duration

	mu      sync.Mutex // of all requests
	topics  map[string]*topic
	viewers int
	readers map[string]int // how many streams each has
	ended   bool
	closed  chan struct{} // when ended
}

// A topic is a page that has viewers.
type topic struct {
	viewers int // guarded by live.mu

	mu      sync.Mutex // held while it is rendered
	message []byte     // as it is sent; nil: it was not rendered yet
	madeAt  time.Time
}

func (l *live) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.ended = true
		close(l.closed)
	}
}

// enter counts a viewer, and the streams of the reader.
func (l *live) enter(key, reader string) (*topic, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.ended:
		return nil, errClosing
	case l.viewers >= maxViewers:
		return nil, errTooManyViewers
	case l.readers[reader] >= maxViewers-l.viewers:
		return nil, errTooManyStreams
	}
	l.viewers++
	l.readers[reader]++
	t := l.topics[key]
	if t == nil {
		t = &topic{}
		l.topics[key] = t
	}
	t.viewers++
	return t, nil
}

func (l *live) leave(key, reader string, t *topic) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.viewers--
	if l.readers[reader]--; l.readers[reader] == 0 {
		delete(l.readers, reader)
	}
	if t.viewers--; t.viewers == 0 {
		delete(l.topics, key)
	}
}

// latest returns a message that is not older than the interval.
func (t *topic) latest(ctx context.Context, interval time.Duration, render func(context.Context) ([]byte,
	error)) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.message != nil && time.Since(t.madeAt) < interval*9/10 {
		return t.message
	}
	html, err := render(context.WithoutCancel(ctx)) // it is for the others, too
	if err != nil {
		t.message = messageOf("failed", []byte(inert.Text(mask.Text(err.Error()))))
	} else {
		t.message = messageOf("page", html)
	}
	t.madeAt = time.Now()
	return t.message
}

// messageOf returns a message of a stream of server-sent events: each line of the text begins with
// "data: ".
func messageOf(event string, text []byte) []byte {
	out := []byte("event: " + event + "\n")
	for line := range bytes.Lines(text) {
		out = append(append(append(out, "data: "...), bytes.TrimRight(line, "\r\n")...), '\n')
	}
	return append(out, '\n')
}

// serve sends the page to a viewer, until the request, the stream's lifetime or the page ends.
func (l *live) serve(w http.ResponseWriter, r *http.Request, key, reader string,
	render func(context.Context) ([]byte, error)) {
	t, err := l.enter(key, reader)
	if errors.Is(err, errTooManyStreams) {
		http.Error(w, err.Error(), http.StatusTooManyRequests)
		return
	} else if err != nil {
		http.Error(w, mask.Text(err.Error()), http.StatusServiceUnavailable)
		return
	}
	defer l.leave(key, reader, t)
	w.Header().Set("Content-Type", eventStream)
	w.Header().Set("X-Accel-Buffering", "no") // nginx would keep it
	out := http.NewResponseController(w)
	end := time.NewTimer(streamLifetime)
	defer end.Stop()
	next := time.NewTicker(l.interval)
	defer next.Stop()
	send := func(message []byte) bool {
		// The server's WriteTimeout is for the whole answer, and would end the stream. The error is
		// ignored: a writer without deadlines goes on without one.
		_ = out.SetWriteDeadline(time.Now().Add(sendTimeout))
		_, err := w.Write(message)
		return err == nil && out.Flush() == nil
	}
	if !send([]byte("retry: 2000\n\n")) {
		return
	}
	for {
		if !send(t.latest(r.Context(), l.interval, render)) {
			return
		}
		select {
		case <-next.C:
		case <-end.C:
			return
		case <-l.closed:
			return
		case <-r.Context().Done():
			return
		}
	}
}
