package servertest

import (
	"errors"
	"path/filepath"
	"testing"
)

// faketime is where distributions have the library.
var faketime = []string{
	"/usr/lib/*/faketime/libfaketime.so.1",
	"/usr/lib64/faketime/libfaketime.so.1",
	"/usr/lib/faketime/libfaketime.so.1",
	"/usr/local/lib/faketime/libfaketime.so.1",
}

// Faketime returns where libfaketime is, which sets the wall clock of a process that calls the C
// library for it, as those of databases do and those of Go do not.
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

// RequireFaketime is Faketime for a test, which it skips if there is none, see Require.
func RequireFaketime(t testing.TB) (library string) {
	t.Helper()
	library, err := Faketime()
	Require(t, err, "install libfaketime (apt-get install libfaketime)")
	return library
}
