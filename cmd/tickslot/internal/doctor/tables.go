package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cmd/tickslot/internal/stores"
	"github.com/tickslot/tickslot/dlock"
)

// kinds are the kinds of the loops that use a part: see cluster.RunnerDetail.
var kinds = map[string]string{"durable": "worker", "outbox": "outbox"}

// tables checks the tables of all parts, and the rights of the URL's user on them. Only the locks
// are required for every fleet.
func (r *report) tables(ctx context.Context) {
	for _, part := range r.Store.Parts {
		about := "tables of " + part.Name
		check, err := r.Store.CheckTables(ctx, part)
		if err != nil {
			r.fail(about, "See whether something has the tables locked.", "they cannot be checked: %v", err)
			continue
		}
		if part.Name != "locks" && check.Missing && !r.used(part) {
			r.noRegistry = r.noRegistry || part.Name == "registry"
			r.pass(about, "not there: if it is used, \"tickslot migrate up --only %s\" creates them", part.Name)
			continue
		}
		if !check.Missing && len(check.Rights) > 0 {
			r.missingRights(about, check.Rights)
			continue // what cannot be read cannot be verified
		}
		switch err := part.Verify(ctx); {
		case err == nil:
			r.pass(about, "as this version needs them")
		case !errors.Is(err, dlock.ErrSetup):
			r.fail(about, "See whether something has the tables locked.", "they cannot be checked: %v", err)
		default:
			fix := fmt.Sprintf("\"tickslot migrate up --only %s\" creates or upgrades them.", part.Name)
			r.fail(about, fix, "%v", err)
		}
	}
}

// used reports whether a host reports that it uses a part.
func (r *report) used(part stores.Part) bool {
	return slices.ContainsFunc(r.snapshot.Hosts, func(h cluster.Host) bool {
		return h.State.Live() && slices.ContainsFunc(h.Runners, func(runner cluster.RunnerDetail) bool {
			return runner.Kind == kinds[part.Name]
		})
	})
}

// missingRights adds a failure for rights that the user does not have.
func (r *report) missingRights(about string, rights []stores.MissingRights) {
	var texts, grants []string
	for _, right := range rights {
		texts = append(texts, right.String())
		grants = append(grants, right.Grant())
	}
	r.fail(about, fmt.Sprintf("If hosts use this user: %s (docs/sql.md has all rights). If they use another one, run "+
		"the doctor with its URL.", strings.Join(grants, "; ")), "this user lacks %s", strings.Join(texts, ", "))
}
