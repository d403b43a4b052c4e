package sqlstore

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/sqlmigrate"
	"github.com/tickslot/tickslot/outbox/internal/store"
)

// split returns the statements of a text. On SQL Server it is one batch, in which statements share
// variables.
func (s *Store) split(text string) []string {
	if s.dialect == sqlkit.SQLServer {
		return []string{text}
	}
	return sqlmigrate.Statements(text)
}

// literal returns an ID as part of a text.
func (s *Store) literal(id store.ID) string {
	switch s.dialect {
	case sqlkit.Postgres:
		return fmt.Sprintf("'%x'::uuid", id[:])
	case sqlkit.SQLServer:
		return fmt.Sprintf("0x%x", id[:])
	}
	return fmt.Sprintf("x'%x'", id[:])
}

// instantOf returns an expression for a parameter that is in microseconds since 1970.
func (s *Store) instantOf(param string) string {
	switch s.dialect {
	case sqlkit.Postgres:
		return "timestamptz 'epoch' + " + param + " * interval '1 microsecond'"
	case sqlkit.MySQL:
		return "TIMESTAMP'1970-01-01 00:00:00' + INTERVAL " + param + " MICROSECOND"
	case sqlkit.SQLServer: // DATEADD takes an int
		return "DATEADD(microsecond, " + param + " % 1000000, DATEADD(second, " + param + " / 1000000, " +
			"CONVERT(datetime2(6), '1970-01-01')))"
	}
	return param
}

// rowOfMessage is a row that append_all inserts; # stands for its number.
func (s *Store) rowOfMessage() string {
	switch s.dialect {
	case sqlkit.SQLite:
		return "({id#}, {topic#}, {key#}, {hash#}, coalesce({payload#}, x''), {headers#})"
	case sqlkit.SQLServer:
		return "({id#}, {topic#}, {key#}, {hash#}, {payload#}, {headers#}, #)"
	}
	return "({id#}, {topic#}, {key#}, {hash#}, {payload#}, {headers#})"
}

// The indexes that have a row once, as MySQL names them.
const (
	indexOfMessages = "message_id"
	indexOfRecords  = "PRIMARY" // of the inbox
)

// isThere reports whether a row was not inserted because this index has it. Postgres and SQLite
// have ON CONFLICT, which inserts no row.
func (s *Store) isThere(err error, index string) bool {
	switch s.dialect {
	case sqlkit.MySQL:
		// What else is in the text depends on the language of the server.
		return sqlkit.MySQLNumber(err) == "1062" &&
			(strings.Contains(err.Error(), "'"+index+"'") || strings.Contains(err.Error(), "."+index+"'"))
	case sqlkit.SQLServer:
		// The numbers of a unique index and of a primary key, each of which only one of the two
		// tables has besides what the server numbers itself.
		if index == indexOfRecords {
			return sqlServerNumber(err) == 2627
		}
		return sqlServerNumber(err) == 2601
	}
	return false
}

// isLater reports whether a transaction of the application has to be repeated because of another.
func (s *Store) isLater(err error) bool {
	switch s.dialect {
	case sqlkit.MySQL:
		return sqlkit.Conflicts(err)
	case sqlkit.SQLite:
		// It has not waited long enough for the write lock of the file, or has begun by reading,
		// and finds that somebody has written since.
		return sqlkit.SQLiteLocked(err)
	case sqlkit.SQLServer:
		// It was the victim of a deadlock, or reads a snapshot.
		return sqlServerNumber(err) == 1205 || sqlServerNumber(err) == 3960
	}
	return sqlkit.State(err) == "40001"
}

// sqlServerNumber returns the number of an error of SQL Server, or 0.
func sqlServerNumber(err error) int32 {
	var refusal interface{ SQLErrorNumber() int32 }
	if !errors.As(err, &refusal) {
		return 0
	}
	return refusal.SQLErrorNumber()
}

// explain adds to a driver's error what to do about it.
func (s *Store) explain(err error) error {
	if s.dialect == sqlkit.SQLite {
		return fmt.Errorf("outbox: %w", sqlkit.ExplainSQLite(err))
	}
	return fmt.Errorf("outbox: %w", sqlkit.Explain(err))
}
