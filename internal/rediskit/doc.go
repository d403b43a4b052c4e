// Package rediskit is what the stores on Redis, redislock and redlock, have in common: connections
// of their own, the checks of their options, what an answer of a server means, and what an audit
// looks at.
package rediskit
