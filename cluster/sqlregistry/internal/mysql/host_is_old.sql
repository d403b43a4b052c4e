o.renewed_at < {now} - INTERVAL GREATEST({hosts}, 3 * o.ttl) MICROSECOND
