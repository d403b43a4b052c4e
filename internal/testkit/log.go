package testkit

import (
	"bytes"
	"sync"
)

// A Log keeps the text written to it. It may be read while it is written. The zero value is empty.
type Log struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

// String returns the text written since the last Reset.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// Reset discards the text.
func (l *Log) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all.Reset()
}
