// Package tickslotriver connects tickslot and River (github.com/riverqueue/river), a job queue on
// Postgres. Limit bounds how many jobs of a kind all clients of all processes work at the same
// time; River itself offers that in River Pro. Sink inserts one job for each message of an outbox.
//
// It is a separate module, so that programs without it do not link River.
package tickslotriver
