package pgxkit

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickslot/tickslot/proof/sqltest"
)

// ways lists how clients send statements, directly and through a PgBouncer.
var ways = map[string]string{
	"prepared": "", "described": "&default_query_exec_mode=cache_describe", "exec": "&default_query_exec_mode=exec",
	"simple protocol": "&default_query_exec_mode=simple_protocol", "PgBouncer": "&default_query_exec_mode=exec",
	"PgBouncer, simple protocol": "&default_query_exec_mode=simple_protocol",
}

// Settings of the role, the database or the server change no result of our transactions, and apply
// again afterwards.
//
// Fails when a setting is missing from the list in sqlkit.
func TestSettingsArePinned(t *testing.T) {
	t.Parallel()
	server := sqltest.SharedPostgres(t)
	sqltest.RequirePgBouncer(t)
	bouncer := sqltest.PgBouncer(t, server, "transaction")
	database := server.NewDatabase(t)
	strange := map[string]string{"default_transaction_isolation": "serializable", "bytea_output": "escape",
		"statement_timeout": "50ms", "lock_timeout": "10ms", "idle_in_transaction_session_timeout": "50ms",
		"synchronous_commit": "off", "datestyle": "German, DMY", "intervalstyle": "sql_standard",
		"search_path": "nowhere", "enable_indexscan": "off", "enable_indexonlyscan": "off", "enable_nestloop": "off",
		"enable_seqscan": "on", "enable_bitmapscan": "on", "jit": "on"}
	for setting, value := range strange { // set from another database, so that the timeouts do not end this session
		if _, err := server.Exec("postgres", "ALTER DATABASE "+database+" SET "+setting+" = '"+value+"'"); err != nil {
			t.Fatal(err)
		}
	}
	pinned := map[string]string{"transaction_isolation": "read committed", "bytea_output": "hex",
		"synchronous_commit": "on", "datestyle": "ISO, DMY", "intervalstyle": "postgres",
		"search_path": "pg_catalog, pg_temp", "enable_indexscan": "on", "enable_indexonlyscan": "on",
		"enable_nestloop": "on", "enable_seqscan": "off", "enable_bitmapscan": "off", "jit": "off",
		"tcp_keepalives_idle": "5", "tcp_keepalives_interval": "2", "tcp_keepalives_count": "3",
		"tcp_user_timeout": "11000"}
	for way, params := range ways {
		dsn := server.DSN("", "", database)
		if strings.HasPrefix(way, "PgBouncer") {
			dsn = strings.Replace(dsn, server.Addr(), bouncer.Addr(), 1)
		}
		conn, err := pgx.Connect(t.Context(), dsn+params)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close(context.Background()) })
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
		defer cancel()
		got := map[string]string{}
		err = Transact(ctx, conn, func(b *pgx.Batch) {
			EachRow(b.Queue("SELECT lower(name), setting FROM pg_settings"), func(rows pgx.Rows) error {
				var name, setting string
				err := rows.Scan(&name, &setting)
				got[name] = setting
				return err
			})
		})
		if err != nil {
			t.Fatalf("%s: %v", way, err)
		}
		for name, want := range pinned {
			if got[name] != want {
				t.Errorf("%s: %s is %q, want %q", way, name, got[name], want)
			}
		}
		limits := []string{"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"}
		if _, ok := got["transaction_timeout"]; ok {
			limits = append(limits, "transaction_timeout")
		}
		for _, name := range limits {
			if len(got[name]) != 5 && len(got[name]) != 6 { // 90,000 to 101,000 ms
				t.Errorf("%s: %s is %s ms", way, name, got[name])
			}
		}
		var after string
		if err := conn.QueryRow(t.Context(), "SHOW bytea_output").Scan(&after); err != nil || after != "escape" {
			t.Errorf("%s: bytea_output is %q after the transaction (%v), want escape", way, after, err)
		}
	}
}
