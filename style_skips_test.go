package tickslot_test

import (
	"regexp"
	"testing"
)

// A test that skips for an unlisted reason may never run, here or in CI, without anyone noticing.
// So tests skip only through servertest.Require, whose skips CI rejects and "make test" lists, or
// through testkit.Long, SkipShort or SkipRace, for tests that another run includes.
//
// Fails when a test calls t.Skip.
func TestSkipsAreSeen(t *testing.T) {
	t.Parallel()
	skip := regexp.MustCompile(`\w\.Skip(f|Now)?\(`)
	may := map[string]string{
		"proof/servertest/testing.go":    "Require",
		"internal/testkit/testkit.go":    "the others",
		"dlock/dlocktest/harness.go":     "what a store need not keep, its Features say",
		"cluster/clustertest/harness.go": "what a registry cannot show, its Registries say",

		"durable/internal/storetest/planning.go": "what the tests of a store cannot do, its Harness says",
		"durable/internal/storetest/steering.go": "the same",
	}
	for path := range goFiles(t) {
		skips := skip.MatchString(read(t, path))
		if skips && may[path] == "" {
			t.Errorf("%s skips: use servertest.Require, or one of testkit", path)
		}
		if !skips && may[path] != "" {
			t.Errorf("%s does not skip any more: take it out of the list", path)
		}
	}
}
