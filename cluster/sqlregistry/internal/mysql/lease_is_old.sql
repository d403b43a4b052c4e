GREATEST(o.renewed_at, IF(o.released_at IS NULL, o.expires_at, o.renewed_at)) < {now} - INTERVAL {leases} MICROSECOND
