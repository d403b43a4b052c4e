package stores

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/internal/mask"
)

var (
	// inside matches package names at the start of errors, which mean nothing to an operator.
	inside = regexp.MustCompile(`\b(?:cluster: (?:read|enumerate)|sqlregistry|pgxregistry|redisregistry|sqllock|` +
		`pgxlock|redislock|durable|outbox): `)
	// setup is the text of dlock.ErrSetup, which is redundant before a more specific text.
	setup = dlock.ErrSetup.Error() + ": "
)

// Say returns the text of an error on one line, in an operator's words: where the store is, what
// failed, and the command that repairs it.
func (s *Store) Say(err error) string {
	text := err.Error()
	if s != nil {
		for _, f := range s.faults(err, nil) {
			said := f.err.Error()
			if !strings.Contains(text, said) {
				said = mask.Text(said) // errors that wrap it may have masked secrets
			}
			text = strings.Replace(text, said, f.text, 1)
		}
	}
	text = s.lackedBy(text, err)
	text = inside.ReplaceAllString(strings.ReplaceAll(text, setup, ""), "")
	text = strings.NewReplacer("call Migrate, or execute Schema", `run "tickslot migrate up"`, "call Migrate",
		`run "tickslot migrate up"`, "Options.Schema", "--schema").Replace(text)
	var lines []string
	for line := range strings.Lines(text) { // from several parts of the store, which often say the same
		line = strings.Join(strings.Fields(line), " ")
		if line != "" && !slices.ContainsFunc(lines, func(l string) bool { return strings.HasSuffix(l, line) }) {
			lines = append(lines, line)
		}
	}
	text = strings.Join(lines, "; ")
	text = strings.ReplaceAll(text, ":; ", ": ")
	if advice, _ := s.Advice(err); advice != "" {
		text = strings.TrimRight(text, ".") + ". " + advice
	}
	return text
}

// A fault is a part of an error that has another text for operators.
type fault struct {
	err  error
	text string
}

// faults returns the faults in the tree of err. If a driver's error requires a repair of the setup,
// its text is part of whole's text, which is replaced.
func (s *Store) faults(err, whole error) []fault {
	if text := s.fault(err); text != "" {
		if whole == nil {
			whole = err
		}
		return []fault{{whole, text}}
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			return s.faults(inner, whole)
		}
	case interface{ Unwrap() []error }:
		var list []fault
		if slices.Contains(e.Unwrap(), dlock.ErrSetup) {
			whole = err
		}
		for _, inner := range e.Unwrap() {
			list = append(list, s.faults(inner, whole)...)
			if whole == err && len(list) > 0 {
				break // its text is replaced as a whole
			}
		}
		return list
	}
	return nil
}

// fault returns the operator's text for a driver's error, or "" if its own text is good.
func (s *Store) fault(err error) string {
	var dial *net.OpError
	switch e := err.(type) {
	case *pgconn.ConnectError:
		if login, ok := errors.AsType[*pgconn.PgError](e); ok {
			return s.fault(login)
		}
		for _, reason := range []error{syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EHOSTUNREACH, io.EOF,
			context.DeadlineExceeded} {
			if errors.Is(err, reason) {
				return s.silent(reason)
			}
		}
		if errors.As(err, &dial) {
			return s.silent(dial.Err)
		}
		if strings.Contains(err.Error(), refusedTLS) {
			return s.Name + " speaks no TLS"
		}
		return ""
	case *net.OpError:
		if e.Op != "dial" && !e.Timeout() && !errors.Is(e, syscall.ECONNRESET) {
			return ""
		}
		return s.silent(e.Err)
	case *pgconn.PgError, *mysql.MySQLError:
		return s.refused(err)
	case *sqlite.Error:
		if strings.Contains(e.Error(), "no such table") {
			return s.lacksTables()
		}
	}
	switch {
	case err == io.EOF, err == io.ErrUnexpectedEOF, err == context.DeadlineExceeded:
		return s.silent(err)
	case err == mysql.ErrNoTLS:
		return s.Name + " speaks no TLS"
	case s.Redis != nil && strings.HasPrefix(err.Error(), "redis: invalid reply"):
		return "what answers is no Redis, at " + s.Name
	}
	return ""
}

// silent describes a store that does not answer, and why.
func (s *Store) silent(why error) string {
	var where *net.DNSError
	switch {
	case errors.As(why, &where):
		return fmt.Sprintf("no answer from %s: there is no host %s", s.Name, where.Name)
	case errors.Is(why, syscall.ECONNREFUSED):
		return fmt.Sprintf("no answer from %s: connection refused", s.Name)
	case errors.Is(why, io.EOF), errors.Is(why, io.ErrUnexpectedEOF), errors.Is(why, syscall.ECONNRESET):
		return s.Name + " closes the connection"
	case errors.Is(why, context.DeadlineExceeded):
		return fmt.Sprintf("no answer from %s in time", s.Name)
	}
	return fmt.Sprintf("no answer from %s: %v", s.Name, why)
}

// refused describes what a database refuses.
func (s *Store) refused(err error) string {
	said, state := "", ""
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		said, state = e.Message, e.Code
	}
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		said, state = e.Message, fmt.Sprint(e.Number)
	}
	switch state {
	case "3D000", "1049":
		return fmt.Sprintf("%s: %s: correct the URL", s.Name, said)
	case "28000", "28P01", "1045":
		return fmt.Sprintf("%s refuses the login: %s", s.Name, said)
	case "42P01", "42883", "3F000", "1146", "1305":
		return s.lacksTables()
	case "42501", "1044", "1142", "1143", "1370":
		return fmt.Sprintf("%s: %s: \"tickslot doctor\" prints the GRANT that is missing", s.Name, said)
	}
	return ""
}

func (s *Store) lacksTables() string { return s.lacks("tables", "", "--locks-table, --registry-table") }

func (s *Store) lacks(tables, only, flags string) string {
	return fmt.Sprintf("%s lacks %s that this command needs, or they have other names: run \"tickslot migrate up%s\", "+
		"or say what the hosts use with --schema, %s", s.Name, tables, only, flags)
}

// lackedBy names the part with missing tables, if it is durable runs or the outbox. The error
// begins with its name, or follows the text of a command.
func (s *Store) lackedBy(text string, err error) string {
	if s == nil {
		return text
	}
	for _, part := range []struct{ name, tables string }{{"durable", "tables of durable runs"},
		{"outbox", "tables of the outbox"}} {
		if strings.Contains(" "+err.Error(), " "+part.name+": ") {
			return strings.Replace(text, s.lacksTables(), s.lacks(part.tables, " --only "+part.name,
				"--"+part.name+"-table"), 1)
		}
	}
	return text
}
