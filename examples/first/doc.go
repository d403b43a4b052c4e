// Command first is the program of the README: one timer, on a store in memory.
//
//	go run ./examples/first
package main
