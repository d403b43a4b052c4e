package sqlstore_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/outbox/internal/sqlstore"
	"github.com/tickslot/tickslot/outbox/internal/store"
	"github.com/tickslot/tickslot/proof/servertest"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// duties has the calls of each role.
var duties = map[string]func(t testing.TB, s subject, user string) map[string]error{
	"producer": func(t testing.TB, s subject, user string) map[string]error {
		m := store.Message{ID: store.ID{1}, Topic: "orders", Key: "a", Headers: map[string]string{"a": "b"}}
		return s.inTx(t, user, map[string]func(context.Context, *sqlstore.Store, store.Tx) error{
			"Append": func(ctx context.Context, box *sqlstore.Store, tx store.Tx) error {
				for range 2 { // the second message is compared with the first
					if _, _, err := box.Append(ctx, tx, m); err != nil {
						return err
					}
				}
				return nil
			},
			"AppendAll": func(ctx context.Context, box *sqlstore.Store, tx store.Tx) error {
				for _, ids := range [][]byte{{2, 3}, {3, 4}} { // one of the second pair already exists
					_, err := box.AppendAll(ctx, tx, []store.Message{{ID: store.ID{ids[0]}, Topic: "orders"},
						{ID: store.ID{ids[1]}, Topic: "orders"}})
					if err != nil {
						return err
					}
				}
				return nil
			},
		})
	},
	"receiver": func(t testing.TB, s subject, user string) map[string]error {
		return s.inTx(t, user, map[string]func(context.Context, *sqlstore.Store, store.Tx) error{
			"Once": func(ctx context.Context, box *sqlstore.Store, tx store.Tx) error {
				for range 2 {
					if _, err := box.Once(ctx, tx, "billing", store.ID{1}); err != nil {
						return err
					}
				}
				return nil
			},
		})
	},
	"relay": func(t testing.TB, s subject, user string) map[string]error {
		box := s.on(t, s.db(t, "", user), "")
		return failed(t, map[string]func(context.Context) error{
			"Verify": box.Verify,
			"Layout": func(ctx context.Context) error {
				if _, err := box.Layout(ctx, 2); err != nil {
					return err
				}
				_, err := box.Layout(ctx, 1)
				return err
			},
			"Due": func(ctx context.Context) error {
				_, err := box.Due(ctx, store.DueRequest{Layout: store.Layout{Shards: 1, Epoch: 1}, Limit: 1})
				return err
			},
			"Mark": func(ctx context.Context) error {
				_, err := box.Mark(ctx, "n", []store.Result{{Seq: 1, Outcome: store.OutcomeOK}})
				return err
			},
			"Mark of a message that fails for long": func(ctx context.Context) error {
				_, err := box.Mark(ctx, "n", []store.Result{{Seq: 1, Attempts: 100, Outcome: store.OutcomeTransient}})
				return err
			},
			"Failing": func(ctx context.Context) error { _, err := box.Failing(ctx); return err },
			"NoteBegun": func(ctx context.Context) error {
				return box.NoteBegun(ctx, []store.Begun{{Seq: 1}})
			},
			"Sweep": func(ctx context.Context) error {
				_, err := box.Sweep(ctx, store.Retention{Dispatched: 1, Dead: 1, Inbox: 1}, 10)
				return err
			},
			"Stats": func(ctx context.Context) error { _, err := box.Stats(ctx, []string{"a"}, false); return err },
		})
	},
	"operator": func(t testing.TB, s subject, user string) map[string]error {
		box := s.on(t, s.db(t, "", user), "")
		return failed(t, map[string]func(context.Context) error{
			"Messages": func(ctx context.Context) error { _, err := box.Messages(ctx, store.Filter{}, 10); return err },
			"Failing":  func(ctx context.Context) error { _, err := box.Failing(ctx); return err },
			"Message":  func(ctx context.Context) error { _, _, _, err := box.Message(ctx, store.ID{1}); return err },
			"Requeue": func(ctx context.Context) error {
				_, err := box.Requeue(ctx, store.Filter{}, store.RequeueRequest{Limit: 10})
				return err
			},
			"Delete": func(ctx context.Context) error { _, err := box.Delete(ctx, store.Filter{}); return err },
		})
	},
}

// failed makes the calls and returns their errors.
func failed(t testing.TB, calls map[string]func(context.Context) error) map[string]error {
	all := map[string]error{}
	for name, call := range calls {
		if err := call(t.Context()); err != nil {
			all[name] = err
		}
	}
	return all
}

// inTx makes each call in its own transaction, rolls the transaction back, and returns the errors.
func (s subject) inTx(t testing.TB, user string,
	calls map[string]func(context.Context, *sqlstore.Store, store.Tx) error) map[string]error {
	t.Helper()
	db := s.db(t, "", user)
	box := s.on(t, db, "")
	all := map[string]error{}
	for name, call := range calls {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := call(t.Context(), box, sqlTx{tx}); err != nil {
			all[name] = err
		}
		_ = tx.Rollback()
	}
	return all
}

// The documented privileges are enough for the calls of each role. If one is missing, the error of
// the failing call says so.
//
// Fails when a statement needs a privilege that is not in docs/sql.md, or when a privilege listed
// there is not needed.
func TestRights(t *testing.T) {
	t.Parallel()
	for name, server := range map[string]func(testing.TB) subject{
		"Postgres": ways["Postgres"], "MySQL, MariaDB": ways["MySQL"],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			s.migrated(t)
			schema, user, grantee := "public", "app", "app"
			if name != "Postgres" {
				schema, grantee = s.database, "'app'@'%'"
				// A user without any privilege in a database cannot even connect.
				s.exec(t, "CREATE TABLE bystander (a INT)", "GRANT SELECT ON bystander TO 'app'@'%'")
			} else {
				s.exec(t, "REVOKE ALL ON SCHEMA public FROM PUBLIC")
			}
			for role, duty := range duties {
				grants, err := sqltest.Documented("../../../docs/sql.md", "outbox, "+role+", "+name, schema, grantee)
				if err != nil {
					t.Fatal(err)
				}
				s.exec(t, grants...)
				if failed := duty(t, s, user); len(failed) > 0 {
					t.Errorf("%s with the documented rights: %v", role, failed)
				}
				rights := sqltest.Rights(grants)
				for _, right := range rights {
					s.exec(t, right.Revoke)
					failed := duty(t, s, user)
					if len(failed) == 0 {
						t.Errorf("%s: without %s, nothing fails", role, right)
					}
					for call, err := range failed {
						says := regexp.MustCompile("privilege|right|may not use").MatchString(err.Error())
						if !errors.Is(err, dlock.ErrSetup) || !says {
							t.Errorf("%s without %s: %s: %v: must match ErrSetup and say so", role, right, call, err)
						}
						if strings.Contains(err.Error(), servertest.Canary) {
							t.Errorf("the error contains the password: %v", err)
						}
					}
					s.exec(t, right.Grant)
				}
				for _, right := range rights {
					s.exec(t, right.Revoke)
				}
			}
		})
	}
}
