// Package rediskit is shared by the Redis stores redislock, redlock and redisregistry: their
// connection pools, their scripts, the checks of their options, the classification of server
// errors, and the audit.
package rediskit
