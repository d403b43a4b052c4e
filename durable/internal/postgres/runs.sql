SELECT NULL::bytea, {columns} FROM {runs} AS r WHERE true
