package sqlkit

import (
	"cmp"
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/tickslot/tickslot/dlock/driver"
)

// Explain adds to a driver's error how to repair its cause, and what it means for a dlock.Session:
// see Meaning.
func Explain(err error) error {
	state := State(err)
	advice, meaning := Advice(state), Meaning(state)
	if advice == "" && meaning != nil {
		advice = "the database refuses the statement"
	}
	switch {
	case meaning != nil:
		return fmt.Errorf("%w: %s: %w", meaning, advice, err)
	case advice != "":
		return fmt.Errorf("%s: %w", advice, err)
	}
	return err
}

// Meaning returns the error that an SQLSTATE matches: driver.ErrFault if the server works and
// rejects only this name, driver.ErrSetup if it serves no name until the setup is repaired. It
// returns nil if the server is unreachable (08), out of resources (53), shutting down or failing
// over (57, 25006), or in conflict with another transaction (40).
func Meaning(state string) error {
	if len(state) != 5 {
		return nil
	}
	if state == LockNotAvailable {
		return driver.ErrFault
	}
	switch state[:2] {
	case "22", "23": // a value that the database does not accept; a constraint added by a user
		return driver.ErrFault
	case "0A", "26", "28", "3D", "3F", "42": // the database does not know it, or does not allow it
		return driver.ErrSetup
	}
	return nil
}

// Passes reports whether the same call may succeed later, because the failure was not caused by its
// statement or the setup: a lock, a server that does not answer, is out of resources or fails over,
// or a broken connection.
func Passes(err error) bool {
	if state := State(err); len(state) == 5 {
		return state == LockNotAvailable || state == "25006" ||
			slices.Contains([]string{"08", "40", "53", "57"}, state[:2])
	}
	return SQLiteLocked(err) || ofNetwork(err) || slices.ContainsFunc([]error{context.DeadlineExceeded,
		context.Canceled, sqldriver.ErrBadConn, io.EOF, io.ErrUnexpectedEOF}, func(target error) bool {
		return errors.Is(err, target)
	})
}

// ofNetwork reports whether an error comes from the network. Some drivers for SQLite give all their
// errors the methods of net.Error.
func ofNetwork(err error) bool {
	var op *net.OpError
	var name *net.DNSError
	var network net.Error
	return errors.As(err, &op) || errors.As(err, &name) || errors.As(err, &network) && network.Timeout()
}

// LockNotAvailable is the SQLSTATE of a lock wait that timed out.
const LockNotAvailable = "55P03"

// LockAdvice says how to resolve LockNotAvailable.
const LockAdvice = "another session keeps the table or a row of it locked: look for transactions that were left open"

// Advice returns how to resolve an SQLSTATE, or "".
func Advice(state string) string {
	switch state {
	case "42P01", "42S02", "42883", "42703", "42S22", "42804", "3F000", "42S01":
		return "the table or its routines are missing or not as this version needs them, or this user lacks a " +
			"privilege (GRANT USAGE ON SCHEMA) that would show them: call Migrate, or execute Schema"
	case "42501":
		return "the user lacks a privilege: see the grants in docs/sql.md"
	case "25006":
		return "this server is read-only: a replica, or a primary that was replaced; connect to the primary" +
			" (or the transaction is read-only: look at default_transaction_read_only)"
	case "42P05", "26000":
		return "a pooler that shares connections (PgBouncer in transaction mode) does not go with prepared " +
			"statements: add default_query_exec_mode=exec to the URL (pgx)," +
			" or use package pgxlock (for locks only)"
	case "28000", "28P01":
		return "the server refuses the login: check user, password and TLS"
	case "3D000":
		return "there is no such database, or none was named: check the address, or Options.Schema"
	case LockNotAvailable:
		return LockAdvice
	}
	return ""
}

// State returns the SQLSTATE of an error of any driver, or "".
func State(err error) string {
	var pg interface{ SQLState() string } // pgx and pq
	if errors.As(err, &pg) {
		return pg.SQLState()
	}
	if err == nil {
		return ""
	}
	var mssql interface{ SQLErrorNumber() int32 } // go-mssqldb
	if errors.As(err, &mssql) {
		return mssqlStates[mssql.SQLErrorNumber()]
	}
	if m := mysqlState.FindStringSubmatch(err.Error()); m != nil {
		if m[1] == "1305" && strings.HasPrefix(m[3], "FUNCTION") {
			return "0A000" // a procedure of the server itself is missing; we have none
		}
		return cmp.Or(mysqlStates[m[1]], m[2])
	}
	return ""
}

// mysqlState matches error texts of MySQL drivers: "Error 1146 (42S02): Table …".
var mysqlState = regexp.MustCompile(`(?i)error (\d+) \(([0-9A-Z]{5})\): (\S*)`)
