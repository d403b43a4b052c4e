package durable

// DefaultTableName is the default of Options.TableName.
const DefaultTableName = "tickslot_durable"

// Options are the settings of a Store. The zero value is valid.
type Options struct {
	// TableName is the prefix of the names of all tables and indexes, so that one database can hold
	// several sets of tables. It is quoted, so any text without braces is valid. At most 40 bytes.
	// Default "tickslot_durable".
	TableName string

	// Schema is the schema of the tables on Postgres. SQLite has none. At most 63 bytes. Default
	// "public", regardless of the search_path.
	Schema string
}

func (o Options) withDefaults() Options {
	orDefault(&o.TableName, DefaultTableName)
	return o
}
