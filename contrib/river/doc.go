// Package tickslotriver joins tickslot and River (github.com/riverqueue/river), a job queue on
// Postgres: Limit keeps a limit of jobs that are worked at once over all clients of all processes,
// which River itself sells, and Sink inserts a job for each message of an outbox, once.
//
// It is a module of its own, so that nobody else links River.
package tickslotriver
