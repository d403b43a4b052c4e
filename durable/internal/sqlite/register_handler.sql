-- ?1 name, ?2 max_concurrency
INSERT INTO {handlers} (name, max_concurrency, seen_at) VALUES (?1, ?2, {now})
ON CONFLICT (name) DO UPDATE SET max_concurrency = excluded.max_concurrency, seen_at = excluded.seen_at
