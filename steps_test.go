package tickslot_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// acquires are the files in which stores implement acquire.
var acquires = []string{
	"internal/leasestate/acquire.go",
	"dlock/redislock/attempt.lua",
	"dlock/sqllock/internal/mysql/sql/acquire.sql",
	"dlock/sqllock/internal/postgres/sql/acquire.sql",
	"dlock/sqllock/internal/sqlite/snapshot.go",
	"dlock/sqllock/internal/sqlserver/sql/acquire.sql",
}

// A step begins with a comment such as "// 3. first: description". A combined step begins with "//
// 6 and 7. slot, delay: description".
var (
	ofContract = regexp.MustCompile(`^\t//\s+(\d+)\. (\w+): `)
	ofStore    = regexp.MustCompile(`^\s*(?://|--) (\d+)(?: and (\d+))?\. (\w+)(?:, (\w+))?: `)
)

// Acquire has the same steps in every store, with the numbers, names and order of the contract. So
// a change to one step can be found in every store.
//
// Fails when a store lacks a step, has one twice, renames it, or takes it earlier.
func TestStoresAcquireInTheSameSteps(t *testing.T) {
	t.Parallel()
	want := steps(read(t, "dlock/driver/store.go"), ofContract)
	if len(want) < 10 {
		t.Fatalf("the comment of TryAcquire has the steps %q: must be 10 or more", want)
	}
	for _, path := range acquires {
		if got := steps(read(t, path), ofStore); !slices.Equal(got, want) {
			t.Errorf("%s has the steps %q: must be those of dlock/driver/store.go, %q", path, got, want)
		}
	}
}

// steps returns the steps marked in a text, such as "3. first".
func steps(text string, mark *regexp.Regexp) (list []string) {
	for line := range strings.Lines(text) {
		m := mark.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		numbers, names := m[1:1+len(m)/2], m[1+len(m)/2:]
		for i, number := range numbers {
			if number != "" || names[i] != "" {
				list = append(list, number+". "+names[i])
			}
		}
	}
	return list
}
