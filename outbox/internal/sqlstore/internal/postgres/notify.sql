SELECT pg_catalog.pg_notify({channel}, '')
