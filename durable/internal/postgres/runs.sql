-- "which" is where the runs come from.
SELECT NULL::bytea, {columns} FROM (/* which */) AS r ORDER BY r.id DESC LIMIT $1::bigint
