// Package storetest tests that a database keeps the contract of package store.
package storetest
