package sqltest

import (
	"fmt"
	"math/rand/v2"
	"sync"
)

// databases are the reusable databases of a Postgres. Creating and dropping one takes a third of a
// second of CPU time, and emptying it a fifth of that.
type databases struct {
	mu     sync.Mutex
	vacant []string
	state  string // state of a new database; "" before the first
}

// database returns an empty database.
func (s *Server) database(clauses string) (name string, err error) {
	s.made.mu.Lock()
	defer s.made.mu.Unlock()
	if n := len(s.made.vacant); n > 0 && clauses == "" {
		name, s.made.vacant = s.made.vacant[n-1], s.made.vacant[:n-1]
		return name, nil
	}
	name = fmt.Sprintf("test_%016x", rand.Uint64())
	if _, err = s.Exec("", "CREATE DATABASE "+name+" "+clauses); err != nil || clauses != "" {
		return name, err
	}
	if s.state != "" && s.made.state == "" {
		s.made.state, err = s.Exec(name, s.state)
	}
	return name, err
}

// vacate empties a database, and keeps it for the next test if it cannot be distinguished from a
// new one.
func (s *Server) vacate(name string) bool {
	if s.state == "" {
		return false
	}
	state, err := s.Exec(name, s.empty+s.state)
	s.made.mu.Lock()
	defer s.made.mu.Unlock()
	if err != nil || state != s.made.state {
		return false
	}
	s.made.vacant = append(s.made.vacant, name)
	return true
}

// emptyPostgres prints nothing.
const emptyPostgres = `
SET client_min_messages = error;
SET lock_timeout = '5s';
DO $$
DECLARE
	schema name;
BEGIN
	PERFORM pg_terminate_backend(pid, 5000) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid();
	FOR schema IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' LOOP
		EXECUTE format('DROP SCHEMA %I CASCADE', schema);
	END LOOP;
	CREATE SCHEMA public AUTHORIZATION pg_database_owner;
	GRANT USAGE ON SCHEMA public TO PUBLIC;
END
$$;
`

// statePostgres prints everything that can be changed in a database: its settings and rights, its
// objects, and the rights to built-in objects.
const statePostgres = `
SELECT datdba, datacl, datconnlimit, datallowconn, (SELECT count(*) FROM pg_db_role_setting WHERE setdatabase = d.oid),
	(SELECT count(*) FROM pg_stat_activity WHERE datname = d.datname AND pid <> pg_backend_pid())
	FROM pg_database d WHERE datname = current_database();
SELECT nspname, nspowner, nspacl FROM pg_namespace WHERE nspname !~ '^pg_(toast_)?temp' ORDER BY nspname;
SELECT md5(string_agg(row(oid, relowner, relacl)::text, '' ORDER BY oid)) FROM pg_class
	WHERE relnamespace NOT IN (SELECT oid FROM pg_namespace WHERE nspname ~ '^pg_(toast_)?temp');
SELECT md5(string_agg(p::text, '' ORDER BY oid)) FROM pg_proc p;
SELECT md5(string_agg(row(oid, typname, typacl)::text, '' ORDER BY oid)) FROM pg_type
	WHERE typnamespace NOT IN (SELECT oid FROM pg_namespace WHERE nspname ~ '^pg_(toast_)?temp');
SELECT (SELECT count(*) FROM pg_operator), (SELECT count(*) FROM pg_cast), (SELECT count(*) FROM pg_extension),
	(SELECT count(*) FROM pg_language), (SELECT count(*) FROM pg_event_trigger), (SELECT count(*) FROM pg_default_acl),
	(SELECT count(*) FROM pg_publication), (SELECT count(*) FROM pg_largeobject_metadata),
	(SELECT count(*) FROM pg_foreign_data_wrapper), (SELECT count(*) FROM pg_collation);
`
