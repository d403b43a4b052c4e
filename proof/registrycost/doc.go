// Package registrycost measures the cost of the registry of package cluster for the locks of its
// host, and for the registry's store. It attacks I16.
package registrycost
