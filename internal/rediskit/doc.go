// Package rediskit is shared by the Redis stores redislock and redlock: their connection pools, the
// checks of their options, the classification of server errors, and the audit.
package rediskit
