//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "the torture needs Linux: all processes share a clock there, and die with the first")
	os.Exit(1)
}
