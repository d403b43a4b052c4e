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

// kinds are what the loops of hosts that use a part call themselves, see cluster.RunnerDetail.
var kinds = map[string]string{"durable": "worker", "outbox": "outbox"}

// tables looks at the tables of all parts, and at what the user of the URL may do to them. Only the
// locks are needed by everybody.
func (e *exam) tables(ctx context.Context) {
	for _, part := range e.Store.Parts {
		about := "tables of " + part.Name
		lacks, err := e.Store.Lacks(ctx, part)
		if err != nil {
			e.ill(about, "See whether something has the tables locked.", "they cannot be checked: %v", err)
			continue
		}
		if part.Name != "locks" && lacks.Missing && !e.used(part) {
			e.noRegistry = e.noRegistry || part.Name == "registry"
			e.well(about, "not there: if it is used, \"tickslot migrate up --only %s\" creates them", part.Name)
			continue
		}
		if !lacks.Missing && len(lacks.Rights) > 0 {
			e.lacking(about, part, lacks.Rights)
			continue // what cannot be read cannot be verified
		}
		switch err := part.Verify(ctx); {
		case err == nil:
			e.well(about, "as this version needs them")
		case !errors.Is(err, dlock.ErrSetup):
			e.ill(about, "See whether something has the tables locked.", "they cannot be checked: %v", err)
		default:
			mend := fmt.Sprintf("\"tickslot migrate up --only %s\" creates or upgrades them.", part.Name)
			e.ill(about, mend, "%v", err)
		}
	}
}

// used reports whether a host says that it uses a part.
func (e *exam) used(part stores.Part) bool {
	return slices.ContainsFunc(e.snapshot.Hosts, func(h cluster.Host) bool {
		return h.State != cluster.HostGone && slices.ContainsFunc(h.Runners, func(r cluster.RunnerDetail) bool {
			return r.Kind == kinds[part.Name]
		})
	})
}

// lacking tells which rights the user lacks.
func (e *exam) lacking(about string, part stores.Part, rights []stores.Lack) {
	var texts, grants []string
	for _, r := range rights {
		texts = append(texts, r.String())
		grants = append(grants, r.Grant())
	}
	where := "docs/sql.md"
	if part.Name == "outbox" {
		where = "docs/outbox-rights.md"
	}
	e.ill(about, fmt.Sprintf("If hosts use this user: %s (%s has all rights). If they use another one, examine with "+
		"its URL.", strings.Join(grants, "; "), where), "this user lacks %s", strings.Join(texts, ", "))
}
