// Package storetest tests that a store.Store does what package store says, on a real database. Each
// test is one promise, with fresh tables.
package storetest
