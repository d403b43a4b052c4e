package testkit

import (
	"bytes"
	"sync"
)

// A Log keeps the text that is written to it, and may be read meanwhile. The zero value is empty.
type Log struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

// String returns the text that was written since the last Reset.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// Reset forgets that text.
func (l *Log) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all.Reset()
}
