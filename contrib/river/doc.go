// Package tickslotriver joins tickslot and River (github.com/riverqueue/river), a job queue on
// Postgres: Limit bounds how many jobs of a kind are worked at once by all clients of all
// processes, which in River itself is part of River Pro, and Sink inserts one job for each message
// of an outbox.
//
// It is a module of its own, so that programs without it do not link River.
package tickslotriver
