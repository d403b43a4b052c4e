package sqlstore

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// split returns the statements of a text. On SQL Server the text is one batch, whose statements
// share variables.
func (s *Store) split(text string) []string {
	if s.dialect == sqlkit.SQLServer {
		return []string{text}
	}
	return sqlmigrate.Statements(text)
}

// literal returns an ID as an SQL literal.
func (s *Store) literal(id store.ID) string {
	switch s.dialect {
	case sqlkit.Postgres:
		return fmt.Sprintf("'%x'::uuid", id[:])
	case sqlkit.SQLServer:
		return fmt.Sprintf("0x%x", id[:])
	}
	return fmt.Sprintf("x'%x'", id[:])
}

// instantOf returns the SQL expression that converts a parameter in µs since 1970 to an instant.
func (s *Store) instantOf(param string) string {
	switch s.dialect {
	case sqlkit.Postgres:
		return "timestamptz 'epoch' + " + param + " * interval '1 microsecond'"
	case sqlkit.MySQL:
		return "TIMESTAMP'1970-01-01 00:00:00' + INTERVAL " + param + " MICROSECOND"
	case sqlkit.SQLServer: // in two steps, because DATEADD takes an int
		return "DATEADD(microsecond, " + param + " % 1000000, DATEADD(second, " + param + " / 1000000, " +
			"CONVERT(datetime2(6), '1970-01-01')))"
	}
	return param
}

// rowOfMessage returns the text of one row of append_all, with # in place of its number.
func (s *Store) rowOfMessage() string {
	switch s.dialect {
	case sqlkit.SQLite:
		return "({id#}, {topic#}, {key#}, {hash#}, coalesce({payload#}, x''), {headers#})"
	case sqlkit.SQLServer:
		return "({id#}, {topic#}, {key#}, {hash#}, {payload#}, {headers#}, #)"
	}
	return "({id#}, {topic#}, {key#}, {hash#}, {payload#}, {headers#})"
}

// MySQL's names of the unique indexes.
const (
	indexOfMessages = "message_id"
	indexOfRecords  = "PRIMARY" // primary key of the inbox
)

// isThere reports whether an insert failed because the unique index already has the row. On
// Postgres and SQLite, ON CONFLICT prevents this error.
func (s *Store) isThere(err error, index string) bool {
	switch s.dialect {
	case sqlkit.MySQL:
		// The rest of the text depends on the language of the server.
		return sqlkit.MySQLNumber(err) == "1062" &&
			(strings.Contains(err.Error(), "'"+index+"'") || strings.Contains(err.Error(), "."+index+"'"))
	case sqlkit.SQLServer:
		// Unique indexes and primary keys have different error numbers. Each of the two tables has
		// only one of them, apart from the row number that the server assigns.
		if index == indexOfRecords {
			return sqlServerNumber(err) == 2627
		}
		return sqlServerNumber(err) == 2601
	}
	return false
}

// isLater reports whether the application has to repeat its transaction because of another
// transaction.
func (s *Store) isLater(err error) bool {
	switch s.dialect {
	case sqlkit.MySQL:
		return sqlkit.Conflicts(err)
	case sqlkit.SQLite:
		// The transaction has not waited long enough for the file's write lock, or it has begun
		// with a read and another transaction has written since.
		return sqlkit.SQLiteLocked(err)
	case sqlkit.SQLServer:
		// The transaction was the victim of a deadlock, or its snapshot is out of date.
		return sqlServerNumber(err) == 1205 || sqlServerNumber(err) == 3960
	}
	return sqlkit.State(err) == "40001"
}

// sqlServerNumber returns SQL Server's number for an error, or 0.
func sqlServerNumber(err error) int32 {
	var refusal interface{ SQLErrorNumber() int32 }
	if !errors.As(err, &refusal) {
		return 0
	}
	return refusal.SQLErrorNumber()
}

// explain adds advice to a driver's error.
func (s *Store) explain(err error) error {
	if s.dialect == sqlkit.SQLite {
		return fmt.Errorf("outbox: %w", sqlkit.ExplainSQLite(err))
	}
	return fmt.Errorf("outbox: %w", sqlkit.Explain(err))
}
