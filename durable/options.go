package durable

// DefaultTableName is what the names of the tables begin with if Options do not say it.
const DefaultTableName = "tickslot_durable"

// Options of a Store. The zero value is fine.
type Options struct {
	// TableName is what the names of the tables and indexes begin with, so that several sets of
	// tables have room in one database. It is quoted, so any text without braces is valid. At most
	// 40 bytes. Default "tickslot_durable".
	TableName string

	// Schema is the schema of the tables on Postgres. SQLite has none. At most 63 bytes. Default
	// "public", whatever the search_path is.
	Schema string
}

// oneOf returns the last of some options, with defaults filled in.
func oneOf(opts []Options) (o Options) {
	if len(opts) > 0 {
		o = opts[len(opts)-1]
	}
	orDefault(&o.TableName, DefaultTableName)
	return o
}
