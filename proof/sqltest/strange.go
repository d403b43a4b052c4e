package sqltest

import (
	"strings"
	"testing"
)

// StrangePostgres gives new sessions in a database settings that users may have and that could
// change an answer.
func StrangePostgres(t testing.TB, s *Server, database string) {
	t.Helper()
	var all strings.Builder
	for setting, value := range map[string]string{"default_transaction_isolation": "serializable",
		"bytea_output": "escape", "synchronous_commit": "off", "datestyle": "German, DMY",
		"intervalstyle": "sql_standard", "timezone": "America/St_Johns", "search_path": "nowhere",
		"plan_cache_mode": "force_generic_plan", "default_transaction_deferrable": "on"} {
		all.WriteString("ALTER DATABASE " + database + " SET " + setting + " = '" + value + "';\n")
	}
	if _, err := s.Exec(database, all.String()); err != nil {
		t.Fatal(err)
	}
}

// StrangeMariaDB has the DSN parameters of a session with such settings.
const StrangeMariaDB = "charset=latin1&clientFoundRows=true&time_zone=%27%2B05:30%27&" +
	"sql_mode=%27ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT%27&sql_select_limit=3&" +
	"tx_isolation=%27READ-COMMITTED%27"

// RefusedMariaDB lists session settings with which products refuse to start, by the word that the
// error must contain.
var RefusedMariaDB = map[string]string{"autocommit": "autocommit=0", "completion_type": "completion_type=%27CHAIN%27",
	"sql_safe_updates": "sql_safe_updates=1", "EMPTY_STRING_IS_NULL": "sql_mode=%27EMPTY_STRING_IS_NULL%27"}
