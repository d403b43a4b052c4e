package caslock

import (
	"context"
	"fmt"
	"time"
)

// A Backend keeps documents, and writes one only if it still has the version that was read. It is
// what a server has to be able to do for a [Store], and what an adapter implements. Every call is
// one request: a Backend neither caches nor repeats one, and it switches off what its client
// library does of that. A call ends with its context, whatever the server does.
//
// Keys are text of 1 to 300 bytes, without control characters, and otherwise with every character;
// two keys with different bytes are two documents. A Backend puts what it needs before them, so
// that several users of one server stay apart.
//
// An error that matches driver.ErrSetup says that the server answered, and can serve nobody until
// somebody fixes it: a table that is missing, a right that the user lacks. The Store passes it on.
// A *ThrottledError asks to come again later.
type Backend interface {
	// Get returns the document of a key, after every Put that was answered before: an eventually
	// consistent read is not enough. A key that has none gives an empty Version, and no error.
	Get(ctx context.Context, key string) (Document, error)

	// Put writes all documents, or none, and returns their new versions in the same order. Each
	// is written if the document of its key still has its Version, "" if there still is none. If
	// one has another, the error is a *ConflictError, and nothing was written. Any other error but
	// a *ThrottledError means that it may have been written, or may be written later.
	//
	// A version is never used again for its key, also after the document was deleted and made anew:
	// a counter that begins at 1 again would let a request in that was on its way meanwhile.
	Put(ctx context.Context, docs ...Document) (versions []string, err error)

	// List returns documents in an order of their keys that stays the same, from the first after a
	// key on; after is "" for the first. more is false if there are none beyond. It may return
	// fewer than limit, also none, only if more is false.
	List(ctx context.Context, after string, limit int) (docs []Document, more bool, err error)

	// Clock returns bounds of the server's time now. It calls the server only if it does not know
	// them from what was answered before. See the type [Clock].
	Clock(ctx context.Context) (Bounds, error)

	// Limits returns what the server bears. It does not call the server.
	Limits() Limits
}

// A Document is what a Backend keeps under a key.
type Document struct {
	Key     string
	Version string // of the Backend's own making; "": there is no document
	Data    []byte // JSON in UTF-8
}

// Limits are what a Backend bears.
type Limits struct {
	// Bytes is the longest Data, at least 4096.
	Bytes int
	// Together is how many documents one Put writes. With 1 no request may take slots of several
	// semaphores, so timers cannot share limits (Also).
	Together int
}

// Bounds say what a clock shows: From, Until, or something between.
type Bounds struct{ From, Until time.Time }

// A ConflictError says that a Put wrote nothing, because a document has another version by now.
type ConflictError struct {
	// Current are the documents of all keys of the Put as they are now, in its order, if the server
	// told. Else it is nil, and the Store reads them.
	Current []Document
}

func (c *ConflictError) Error() string { return "the document was changed meanwhile" }

// A ThrottledError says that the server did nothing, and asks to come again later: HTTP status 429
// or 503 with Retry-After, for instance. A Store does, if the deadline of its call allows.
type ThrottledError struct {
	Wait time.Duration // how much later; 0: the server did not tell
	Err  error         // what it said
}

func (t *ThrottledError) Error() string {
	return fmt.Sprintf("the server asks to come again in %v: %v", t.Wait, t.Err)
}

// Unwrap returns what the server said.
func (t *ThrottledError) Unwrap() error { return t.Err }
