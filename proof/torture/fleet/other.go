//go:build !linux || !amd64

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "the torture needs Linux on amd64: it stops processes, and sets the wall clock of one "+
		"of them")
	os.Exit(1)
}
