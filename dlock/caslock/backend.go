package caslock

import (
	"context"
	"fmt"
	"time"
)

// A Backend stores documents and replaces one only if it still has the version that was read. A
// server needs this operation to carry a [Store], and an adapter implements it. Every call is one
// request: a Backend does not cache or retry, and it turns off its client library's caching and
// retries. A call returns when its context ends, whatever the server does.
//
// Keys are 1 to 300 bytes of text without control characters; all other characters may occur. Keys
// that differ in any byte belong to different documents. A Backend adds a prefix to keys where
// several users share a server.
//
// An error that matches driver.ErrSetup means that the server answered, but cannot work until
// someone fixes its setup, such as a missing table or permission. The Store returns such an error
// to its caller. A *ThrottledError asks the Store to retry later.
type Backend interface {
	// Get returns the document of a key. The read must see every Put that was answered before it,
	// so an eventually consistent read is not enough. If the key has no document, Get returns one
	// with an empty Version and no error.
	Get(ctx context.Context, key string) (Document, error)

	// Put writes either all documents or none, and returns the new versions in the same order. It
	// writes only if the stored document of every key still has the given Version; "" means that
	// the key must have no document. If any version differs, Put writes nothing and returns a
	// *ConflictError. After any other error except a *ThrottledError, the write may have happened
	// or may still happen.
	//
	// A key never gets the same version twice, even if its document is deleted and created again.
	// If a counter restarted at 1, a delayed request with an old version could succeed.
	Put(ctx context.Context, docs ...Document) (versions []string, err error)

	// List returns the documents that follow the key after, in an order of keys that never changes.
	// An empty after starts at the beginning. more is true if documents remain. List returns fewer
	// than limit documents only if more is false.
	List(ctx context.Context, after string, limit int) (docs []Document, more bool, err error)

	// Clock returns bounds of the server's current time. It calls the server only if earlier
	// answers do not give the bounds. See the type [Clock].
	Clock(ctx context.Context) (Bounds, error)

	// Limits returns the server's limits. It does not call the server.
	Limits() Limits
}

// A Document is what a Backend keeps under a key.
type Document struct {
	Key     string
	Version string // chosen by the Backend; "" means that there is no document
	Data    []byte // JSON in UTF-8
}

// Limits are the limits of a Backend.
type Limits struct {
	// Bytes is the maximum length of Data. It must be at least 4096.
	Bytes int
	// Together is the maximum number of documents in one Put. If it is 1, a request cannot take
	// slots of several semaphores, so timers cannot share limits (Also).
	Together int
}

// Bounds are the earliest and the latest time that a clock may show.
type Bounds struct{ From, Until time.Time }

// A ConflictError says that a Put wrote nothing because a document had another version.
type ConflictError struct {
	// Current holds the current documents of all keys of the Put, in the order of the Put. If the
	// server does not return them, Current is nil and the Store reads the documents.
	Current []Document
}

func (c *ConflictError) Error() string { return "the document has changed meanwhile" }

// A ThrottledError says that the server did nothing and asks the client to retry later, for example
// with HTTP status 429, or 503 with Retry-After. The Store retries if the deadline of its call
// allows.
type ThrottledError struct {
	Wait time.Duration // how long to wait; 0 if the server did not say
	Err  error         // the server's error
}

func (t *ThrottledError) Error() string {
	return fmt.Sprintf("the server asks to retry in %v: %v", t.Wait, t.Err)
}

// Unwrap returns the server's error.
func (t *ThrottledError) Unwrap() error { return t.Err }
