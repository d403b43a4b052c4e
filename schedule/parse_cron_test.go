package schedule_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tickslot/tickslot/schedule"
)

// ParseCron returns a nil schedule and all faults that Check finds in a Cron.
//
// Fails when ParseCron returns a schedule together with an error, returns only the first fault, or
// accepts expressions that never fire.
func TestParseCron(t *testing.T) {
	for _, spec := range []string{"0 2 * * *", " 0 0 2 * * * ", "@Daily", "0 0 L * FRI#L"} {
		s, err := schedule.ParseCron(spec, "Europe/Berlin")
		if err != nil {
			t.Errorf("%q: %v", spec, err)
			continue
		}
		if want := schedule.Cron(spec, "Europe/Berlin"); schedule.Identity(s) != schedule.Identity(want) {
			t.Errorf("%q: %s, want %s", spec, schedule.Identity(s), schedule.Identity(want))
		}
	}
	for _, c := range []struct {
		spec, zone string
		want       []string
	}{
		{"61 2 * * *", "Europe/Berln", []string{`"61"`, `"Europe/Berln"`}},
		{"", "", []string{"it is empty"}},
		{"0 0 30 2 *", "", []string{"it never fires"}},
		{"@every 1h", "", []string{"schedule.Every"}},
		{"\x00", "local", []string{"no such character", `"local"`}},
	} {
		s, err := schedule.ParseCron(c.spec, c.zone)
		if s != nil || err == nil {
			t.Errorf("%q in %q: %v, %v; want no schedule and an error", c.spec, c.zone, s, err)
			continue
		}
		if want := errors.Join(schedule.Check(schedule.Cron(c.spec, c.zone))...); err.Error() != want.Error() {
			t.Errorf("%q in %q:\n%v\nwant what Check says:\n%v", c.spec, c.zone, err, want)
		}
		for _, part := range c.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q in %q: %v; want %s in it", c.spec, c.zone, err, part)
			}
		}
	}
}
