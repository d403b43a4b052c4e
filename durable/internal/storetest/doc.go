// Package storetest tests that a store.Store keeps the contract of package store. Each test checks
// one promise and has its own tables.
package storetest
