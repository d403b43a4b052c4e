// Package storetest tests that a store.Store keeps the contract of package store. Each test is one
// promise, with fresh tables.
package storetest
