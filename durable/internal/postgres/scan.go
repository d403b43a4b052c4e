package postgres

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickslot/tickslot/durable/internal/store"
)

// into returns a scanner for a column. NULL becomes the zero value.
func into[T any](dst *T) sql.Scanner { return &column[T]{dst} }

type column[T any] struct{ dst *T }

func (c *column[T]) Scan(value any) error {
	var ok bool
	switch dst := any(c.dst).(type) {
	case *int64:
		*dst, ok = value.(int64)
	case *int:
		var n int64
		n, ok = value.(int64)
		*dst = int(n)
	case *bool:
		*dst, ok = value.(bool)
	case *time.Time:
		*dst, ok = value.(time.Time)
		*dst = dst.UTC()
	case *[]byte:
		var b []byte
		b, ok = value.([]byte)
		*dst = append([]byte(nil), b...)
	case *string:
		*dst, ok = value.(string)
	case *store.State:
		var text string
		text, ok = value.(string)
		*dst = store.State(text)
	case *store.Outcome:
		var text string
		text, ok = value.(string)
		*dst = store.Outcome(text)
	}
	if !ok && value != nil {
		return fmt.Errorf("the database returned an invalid answer: %T for %T", value, c.dst)
	}
	return nil
}

// scanRun scans the columns of the SQL part "columns" into a run, and the columns before them into
// before.
func scanRun(rows pgx.Rows, r *store.Run, before ...any) error {
	return rows.Scan(append(before, into(&r.Payload), into(&r.ID), into(&r.Attempt), into(&r.Claim), into(&r.Handler),
		into(&r.Schedule), into(&r.DueAt), into(&r.Backfill), into(&r.State), into(&r.Priority),
		into(&r.RunAt), into(&r.MaxAttempts), into(&r.Uncounted), into(&r.FailingSince),
		into(&r.Key), into(&r.Partition), into(&r.Nonce), into(&r.PayloadLen), into(&r.By.By),
		into(&r.By.Note), into(&r.TraceParent), into(&r.CanceledBy.By), into(&r.CanceledBy.Note), into(&r.Worker),
		into(&r.ClaimedAt), into(&r.LeaseUntil), into(&r.LastError), into(&r.CreatedAt),
		into(&r.FinishedAt))...)
}

// pause returns a pause, or nil for the zero time.
func pause(until time.Time, by store.Cause) *store.Pause {
	if until.IsZero() {
		return nil
	}
	return &store.Pause{Until: until, By: by}
}

// inJSON returns a list as JSON, for an argument.
func inJSON[T any](list []T) string {
	if len(list) == 0 {
		return "[]"
	}
	text, err := json.Marshal(list)
	if err != nil {
		panic(err) // such values can always be marshaled
	}
	return string(text)
}
