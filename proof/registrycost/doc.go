// Package registrycost counts and measures what the registry of package cluster costs the
// locks of its host, and the store that keeps it. It attacks I16.
package registrycost
