package servertest

import (
	"errors"
	"path/filepath"
	"testing"
)

// faketime lists where distributions install the library.
var faketime = []string{
	"/usr/lib/*/faketime/libfaketime.so.1",
	"/usr/lib64/faketime/libfaketime.so.1",
	"/usr/lib/faketime/libfaketime.so.1",
	"/usr/local/lib/faketime/libfaketime.so.1",
}

// Faketime returns the path of libfaketime, which sets the wall clock of processes that read it
// through the C library. Databases do; Go programs do not.
func Faketime() (library string, err error) {
	for _, pattern := range faketime {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			library = found[0]
		}
	}
	if library == "" {
		err = errors.New("libfaketime not found")
	}
	return library, err
}

// RequireFaketime is Faketime for a test. It skips the test if the library is missing: see Require.
func RequireFaketime(t testing.TB) (library string) {
	t.Helper()
	library, err := Faketime()
	Require(t, err, "install libfaketime (apt-get install libfaketime)")
	return library
}
