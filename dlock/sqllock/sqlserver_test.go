package sqllock_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tickslot/tickslot/dlock/driver"
	"github.com/tickslot/tickslot/dlock/sqllock"
	"github.com/tickslot/tickslot/proof/sqltest"
)

// A scripted driver answers with given rows and records the statements. The statements have not
// been run on SQL Server. These tests check what can be checked without it.
type scripted struct {
	answers [][]sqldriver.Value
	texts   []string
	args    [][]sqldriver.NamedValue
}

func (s *scripted) Driver() sqldriver.Driver                        { return nil }
func (s *scripted) Connect(context.Context) (sqldriver.Conn, error) { return scriptedConn{s}, nil }
func (s *scripted) last() (text string, args []sqldriver.NamedValue) {
	return s.texts[len(s.texts)-1], s.args[len(s.args)-1]
}
func (s *scripted) will(answers ...sqldriver.Value) *scripted {
	s.answers = append(s.answers, answers)
	return s
}

func (s *scripted) store(t testing.TB, opts sqllock.Options) *sqllock.Store {
	db := sql.OpenDB(s)
	t.Cleanup(func() { db.Close() })
	return sqllock.SQLServer(db, opts)
}

type scriptedConn struct{ *scripted }

func (c scriptedConn) Prepare(string) (sqldriver.Stmt, error) { return nil, errors.New("not prepared") }
func (c scriptedConn) Begin() (sqldriver.Tx, error) {
	return nil, errors.New("no transaction of the client")
}
func (c scriptedConn) Close() error { return nil }

func (c scriptedConn) ExecContext(
	_ context.Context, query string, args []sqldriver.NamedValue,
) (sqldriver.Result, error) {
	c.texts, c.args = append(c.texts, query), append(c.args, args)
	return sqldriver.RowsAffected(0), nil
}

func (c scriptedConn) QueryContext(
	_ context.Context, query string, args []sqldriver.NamedValue,
) (sqldriver.Rows, error) {
	c.texts, c.args = append(c.texts, query), append(c.args, args)
	if len(c.answers) == 0 {
		return nil, errors.New("no answer left")
	}
	row := c.answers[0]
	c.answers = c.answers[1:]
	return &scriptedRows{row: row}, nil
}

type scriptedRows struct {
	row  []sqldriver.Value
	done bool
}

func (r *scriptedRows) Columns() []string { return make([]string, len(r.row)) }
func (r *scriptedRows) Close() error      { return nil }

func (r *scriptedRows) Next(dest []sqldriver.Value) error {
	if r.done {
		return io.EOF
	}
	r.done = true
	copy(dest, r.row)
	return nil
}

// wellFormed checks the syntax of a statement, and that each transaction and block that begins also
// ends.
func wellFormed(t *testing.T, text string, args int) {
	t.Helper()
	code := sqltest.CheckSQLServerStatement(t, text, args)
	if strings.Count(code, "BEGIN TRANSACTION") != strings.Count(code, "COMMIT TRANSACTION") {
		t.Errorf("a transaction stays open in\n%s", text)
	}
	blocks := len(regexp.MustCompile(`(?m)^\s*BEGIN$`).FindAllString(code, -1))
	if ends := len(regexp.MustCompile(`(?m)^\s*END$`).FindAllString(code, -1)); blocks != ends {
		t.Errorf("%d BEGIN and %d END in\n%s", blocks, ends, text)
	}
}

func TestSQLServerStatements(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	req := driver.Request{Name: "orders", Slots: 3, Token: "secret", TTL: 1500 * time.Microsecond * 1000,
		Holder: driver.Holder{Host: "h", PID: 7, ID: "i"},
		Tick:   &driver.Tick{At: time.UnixMicro(42), Max: 2, Schedule: -8, MissedAt: time.UnixMicro(43)}}
	grant := driver.Grant{Name: "orders", Slots: 3, Slot: 2, Token: "secret", Fence: 9,
		Info:            driver.Info{DeclaredSlots: 5, SuccessAge: 6 * time.Second, Version: 12, SlotLimit: 4},
		PreviousExpired: true}

	t.Run("acquire", func(t *testing.T) {
		s := (&scripted{}).will("ok", int64(2), int64(9), int64(5), int64(6e6), "", int64(0), "", int64(0), int64(0),
			int64(1), int64(12), int64(4), "")
		got, err := s.store(t, sqllock.Options{Prefix: "shop:"}).TryAcquire(ctx, req)
		if err != nil || !reflect.DeepEqual(got, grant) {
			t.Errorf("%+v, %v, want %+v", got, err, grant)
		}
		text, args := s.last()
		wellFormed(t, text, len(args))
		for i, want := range []string{"shop:orders:slot:", "3", "secret", "1500000", "42", "2", "43", "5000000", "h",
			"7", "i", "", "-8"} {
			if got := asText(args[i].Value); got != want && want != "" {
				t.Errorf("parameter %d is %s, want %s", i+1, got, want)
			}
		}
		if len(s.texts) != 1 {
			t.Errorf("%d statements were sent, want 1", len(s.texts))
		}
	})
	t.Run("refusals", func(t *testing.T) {
		for _, reason := range []string{"full", "tick_taken", "tick_late", "tick_ahead", "tick_first", "tick_held",
			"paused"} {
			s := (&scripted{}).will(reason, int64(0), int64(0), int64(5), int64(6e6), "other", int64(8), "x",
				int64(2e6), int64(3e6), int64(0), int64(12), int64(4), `{"by":"ann"}`)
			_, err := s.store(t, sqllock.Options{}).TryAcquire(ctx, req)
			no, ok := errors.AsType[*driver.NotAcquiredError](err)
			if !ok || string(no.Reason) != reason || no.Info.DeclaredSlots != 5 ||
				no.Info.SuccessAge != 6*time.Second || no.Info.Version != 12 || no.Info.SlotLimit != 4 {
				t.Errorf("%s: %v", reason, err)
			}
			if ok && reason == "full" && (no.Holder != driver.Holder{Host: "other", PID: 8, ID: "x"} ||
				no.HeldFor != 2*time.Second || no.ExpiresIn != 3*time.Second) {
				t.Errorf("%+v", no)
			}
			if ok && reason == "tick_taken" && no.Holder != (driver.Holder{Host: "other", PID: 8, ID: "x"}) {
				t.Errorf("%+v", no)
			}
			if ok && reason == "paused" && (no.PausedBy != driver.Cause{By: "ann"} || no.ExpiresIn != 3*time.Second) {
				t.Errorf("%+v", no)
			}
		}
	})
	t.Run("nonsense", func(t *testing.T) {
		for _, answer := range [][]sqldriver.Value{
			{"", int64(0), int64(0), int64(0), int64(0), "", int64(0), "", int64(0), int64(0), int64(0), int64(0),
				int64(0), ""},
			{"ok", int64(3), int64(9), int64(0), int64(0), "", int64(0), "", int64(0), int64(0), int64(0), int64(0),
				int64(0), ""},
			{"ok", int64(0), int64(0), int64(0), int64(0), "", int64(0), "", int64(0), int64(0), int64(0), int64(0),
				int64(0), ""},
			{"asleep", int64(0), int64(0), int64(0), int64(0), "", int64(0), "", int64(0), int64(0), int64(0), int64(0),
				int64(0), ""},
			{nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil},
			{"ok", int64(0), int64(9), int64(0), int64(0), "", int64(0), "", int64(0), int64(0), int64(0)},
			{"ok"},
		} {
			_, err := (&scripted{}).will(answer...).store(t, sqllock.Options{}).TryAcquire(ctx, req)
			if err == nil || errors.Is(err, driver.ErrNotAcquired) {
				t.Errorf("%v: %v: must be an error of the store", answer, err)
			}
		}
	})
	t.Run("extend and release", func(t *testing.T) {
		other := driver.Grant{Name: "m", Token: "else", Slot: driver.AnySlot}
		s := (&scripted{}).will(`[[1,0,0,13,"{\"by\":\"ann\"}"],[0,1,5,12,null]]`).will(`[[0,1,5],[1,0,0]]`).will(
			`[[0,1,5]]`).will(`nonsense`)
		store := s.store(t, sqllock.Options{})
		check := func(well int, r []driver.Result, err error) {
			t.Helper()
			if err != nil || r[0].Outcome != driver.GrantOK || r[0].Info.DeclaredSlots != 5 ||
				r[1].Outcome != driver.GrantLost {
				t.Errorf("%v, %v", r, err)
			}
			text, args := s.last()
			wellFormed(t, text, len(args))
			list := asText(args[len(args)-1].Value)
			if want := fmt.Sprintf(`[[0,"6f72646572733a736c6f743a",2,"736563726574",%d],[1,"6d",-1,"656c7365",0]]`,
				well); list != want {
				t.Errorf("grants are %s, want %s", list, want)
			}
		}
		r, err := store.Extend(ctx, time.Second, grant, other)
		check(0, r, err)
		if r[0].Info.Version != 12 || r[0].RevokedBy != nil || r[1].Info.Version != 13 || r[1].RevokedBy == nil ||
			*r[1].RevokedBy != (driver.Cause{By: "ann"}) {
			t.Errorf("extend: %+v: the second lease was revoked by ann", r)
		}
		well := grant
		well.Succeeded = true
		r, err = store.Release(ctx, well, other)
		check(1, r, err)
		for range 2 {
			if r, err := store.Release(ctx, grant, other); err == nil {
				t.Errorf("%v: an answer that makes no sense was taken", r)
			}
		}
	})
	t.Run("overrides", func(t *testing.T) {
		s := (&scripted{}).will(int64(1)).will(int64(1)).will(int64(1)).will(int64(0)).
			will(`[{"n":"73686F703A613A736C6F743A","version":8,"clock":9,"value":"kept"}]`).
			will(`[{"n":"73686F703A613A736C6F743A","version":3,"pause_left":2000000,"pause_origin":"{\"by\":\"ann\"}","limit_origin":"","triggered_at":42,` +
				`"trigger_age":1000,"trigger_origin":"me","tick":7,"host":"h","pid":1,"id":"i"},` +
				`{"n":"73686F703A623A736C6F743A","version":4,"pause_left":0,"pause_origin":"","limit":0,"limit_origin":"{\"by\":\"bob\"}",` +
				`"trigger_age":0,"trigger_origin":"","host":"","pid":0,"id":""}]`).
			will(`[{"n":"no hex"}]`).will(int64(1)).will(int64(0))
		store := s.store(t, sqllock.Options{Prefix: "shop:"})
		sent := func(what string, want ...string) {
			t.Helper()
			text, args := s.last()
			wellFormed(t, text, len(args))
			for i, w := range want {
				if got := asText(args[i].Value); got != w {
					t.Errorf("%s: parameter %d is %s, want %s", what, i+1, got, w)
				}
			}
		}
		err := store.Update(ctx, "a", driver.Update{Pause: &driver.Pause{Cause: ann, For: time.Second},
			ResetLimit: &driver.Cause{By: "bob"}})
		if err != nil {
			t.Error(err)
		}
		sent("update", "shop:a:slot:", "1000000", `{"by":"ann","note":"gr\u00fcn \u4e16\u754c \ud83d\udd12"}`, "-1",
			`{"by":"bob"}`, "<nil>")
		if err := store.Update(ctx, "a", driver.Update{Trigger: &ann}); err != nil {
			t.Error(err)
		}
		sent("trigger", "shop:a:slot:", "<nil>", "<nil>", "<nil>", "<nil>",
			`{"by":"ann","note":"gr\u00fcn \u4e16\u754c \ud83d\udd12"}`)
		if err := store.Update(ctx, "a", driver.Update{Value: &driver.Value{Text: "kept", Version: 7}}); err != nil {
			t.Error(err)
		}
		sent("value", "shop:a:slot:", "<nil>", "<nil>", "<nil>", "<nil>", "<nil>")
		err = store.Update(ctx, "a", driver.Update{Value: &driver.Value{Version: 7}})
		if !errors.Is(err, driver.ErrChanged) {
			t.Errorf("another version: %v", err)
		}
		v, err := store.Value(ctx, "a")
		if err != nil || v != (driver.ValueState{Text: "kept", Version: 8, At: time.UnixMicro(9)}) {
			t.Errorf("%+v, %v", v, err)
		}
		o, err := store.Inspect(ctx, "none", "a", "b")
		if err != nil || o[0] != (driver.ControlState{Name: "none"}) || o[1].Version != 3 || o[2].Version != 4 {
			t.Fatalf("%+v, %v", o, err)
		}
		if p := o[1].Pause; p == nil || *p != (driver.Pause{Cause: driver.Cause{By: "ann"}, For: 2 * time.Second}) ||
			o[1].Limit != nil || o[2].Pause != nil {
			t.Errorf("%+v", o)
		}
		if l := o[2].Limit; l == nil || *l != (driver.LimitOverride{Cause: driver.Cause{By: "bob"}}) {
			t.Errorf("limit %+v", l)
		}
		if tr := o[1].Trigger; tr == nil || *tr != (driver.Trigger{Cause: driver.Cause{By: "me"},
			At: time.UnixMicro(42), Age: time.Millisecond}) || o[2].Trigger != nil {
			t.Errorf("trigger %+v", tr)
		}
		if !o[1].LastTick.Equal(time.UnixMicro(7)) || o[1].ClaimedBy != (driver.Holder{Host: "h", PID: 1, ID: "i"}) ||
			!o[2].LastTick.IsZero() {
			t.Errorf("ticks of %+v", o)
		}
		sent("inspect", `["73686f703a6e6f6e653a736c6f743a","73686f703a613a736c6f743a","73686f703a623a736c6f743a"]`)
		if o, err := store.Inspect(ctx, "a"); err == nil {
			t.Errorf("%+v: an answer that makes no sense was taken", o)
		}
		if err := store.Revoke(ctx, "a", 2, 9, driver.Cause{By: "bob"}); err != nil {
			t.Error(err)
		}
		sent("revoke", "shop:a:slot:", "2", "9", `{"by":"bob"}`)
		if err := store.Revoke(ctx, "a", 2, 9, ann); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("%v: must be ErrNotHeld", err)
		}
	})
	t.Run("the others", func(t *testing.T) {
		s := (&scripted{}).
			will(`[{"slot":1,"host":"h","pid":7,"id":"i","fence":9,"held_for":1000,"renewed_ago":500,"expires_in":2000}]`).
			will(int64(3), int64(1), []byte("x"), int64(0)).
			will(`[]`). // answer for the format
			will(`[]`, "", "").
			will(int64(0)).
			will(time.Now().Add(-time.Hour).UnixMicro(), int64(2)).
			will(`[{"n":"","version":1}]`).
			will(`[]`, "", "").
			will(int64(0))
		store := s.store(t, sqllock.Options{TableName: "it's [locks]", Schema: "dbo"})
		held, err := store.List(ctx, "orders", 3)
		if err != nil || len(held) != 1 || held[0].Slot != 1 || held[0].ExpiresIn != 2*time.Millisecond ||
			held[0].RenewedAgo != 500*time.Microsecond || held[0].Mutex || held[0].Holder.PID != 7 {
			t.Errorf("%+v, %v", held, err)
		}
		if err := store.Cleanup(ctx); err != nil {
			t.Error(err)
		}
		if err := store.Verify(ctx); !errors.Is(err, sqllock.ErrSchema) {
			t.Errorf("%v: must say that there is no table", err)
		}
		later := (&scripted{}).will(`[{"n":"","version":2}]`).store(t, sqllock.Options{})
		if err := later.Verify(ctx); !errors.Is(err, driver.ErrSetup) || errors.Is(err, sqllock.ErrSchema) ||
			!strings.Contains(err.Error(), "format 2") {
			t.Errorf("%v: must say that a later version uses the table", err)
		}
		if w, err := store.Audit(ctx); err != nil || len(w) != 3 || !strings.Contains(w[0], "1h0m0") {
			t.Errorf("%v, %v: must warn of the clock, of DELAYED_DURABILITY and of the missing table", w, err)
		}
		for i, text := range s.texts {
			wellFormed(t, text, len(s.args[i]))
			if strings.Contains(text, "FROM ") && !strings.Contains(text, "[dbo].[it's [locks]]]") &&
				!strings.Contains(text, "[dbo].[it's [locks]]_migrations]") &&
				!strings.Contains(text, "sys.") {
				t.Errorf("the table is not named, or not quoted, in\n%s", text)
			}
		}
		statements, err := store.Schema()
		if err != nil || len(statements) != 3 {
			t.Fatal(statements, err)
		}
		for _, statement := range statements {
			wellFormed(t, statement, 0)
		}
		if !strings.Contains(statements[1], "OBJECT_ID(N'[dbo].[it''s [locks]]]', N'U')") {
			t.Errorf("the name is not quoted as a text in\n%s", statements[1])
		}
	})
}

func asText(v any) string {
	switch v := v.(type) {
	case []byte:
		return string(v)
	default:
		return fmt.Sprint(v)
	}
}
