package sqlkit

import "time"

// LastResort bounds a wait in the database when the context has no deadline. A dlock.Session always
// sets one.
const LastResort = 5 * time.Second

// MaxStale bounds how many connections in a row may turn out to have been closed by the server.
// Each is thrown away.
const MaxStale = 100

// ReadOnly is the SQLSTATE with which a replica refuses to write.
const ReadOnly = "25006"
