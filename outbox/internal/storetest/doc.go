// Package storetest tests that a database keeps to what package store says of it.
package storetest
