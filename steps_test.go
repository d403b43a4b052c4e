package tickslot_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// acquires are the files in which the stores acquire.
var acquires = []string{
	"internal/leasestate/acquire.go",
	"dlock/redislock/attempt.lua",
	"dlock/sqllock/internal/mysql/sql/acquire.sql",
	"dlock/sqllock/internal/postgres/sql/acquire.sql",
	"dlock/sqllock/internal/sqlite/snapshot.go",
	"dlock/sqllock/internal/sqlserver/sql/acquire.sql",
}

// A step begins with a comment like "// 3. first: what it does". One that does two of them begins
// with "// 6 and 7. slot, delay: what it does".
var (
	ofContract = regexp.MustCompile(`^\t//\s+(\d+)\. (\w+): `)
	ofStore    = regexp.MustCompile(`^\s*(?://|--) (\d+)(?: and (\d+))?\. (\w+)(?:, (\w+))?: `)
)

// The steps of an acquire are those of the contract in every store, with the same numbers and names
// and in the same order, so that who changes one finds it in all.
//
// Fails when a store lacks a step, has one twice, gives it another name, or takes it earlier.
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

// steps returns the steps that a text marks, as in "3. first".
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
