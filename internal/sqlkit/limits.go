package sqlkit

import "time"

// LastResort bounds a wait in the database if the context has no deadline. A dlock.Session always
// sets one.
const LastResort = 5 * time.Second

// MaxStale is how many connections in a row may have been closed by the server. Each is replaced.
const MaxStale = 100

// ReadOnly is the SQLSTATE with which a replica refuses to write.
const ReadOnly = "25006"
