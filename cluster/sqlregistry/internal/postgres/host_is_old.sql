o.renewed_at < {now} - greatest({hosts}, 3 * o.ttl) * interval '1 microsecond'
