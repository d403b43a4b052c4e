package page_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/cluster/page"
)

// An instant is a time of day with the letters UTC, and its tooltip has the date, too.
//
// Fails when an instant has no tooltip.
func TestTimesAreShort(t *testing.T) {
	t.Parallel()
	at := time.Now().UTC()
	if got := string(page.TimeOfDay(at)); !strings.Contains(got, ">"+at.Format("15:04 UTC")+"<") ||
		!strings.Contains(got, `title="`+at.Format("2006-01-02 15:04:05 UTC")+`"`) {
		t.Error(got)
	}
}
