-- Has each lease of name ?1 that was renewed while the clock was ahead end a TTL from now: its
-- holder trusts it for its TTL from a moment that is over. Otherwise it would last longer by that
-- much.
UPDATE {table} SET expires_at = {now} + expires_at - renewed_at, renewed_at = {now}
WHERE resource_name = ?1 AND slot >= 0 AND renewed_at > {now} + {ahead} AND expires_at >= {now}
