SELECT r.payload, {columns} FROM {runs} AS r WHERE r.id = $1::bigint
