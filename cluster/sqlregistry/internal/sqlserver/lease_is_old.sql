DATEDIFF_BIG(MICROSECOND, o.renewed_at, @now) > {leases}
	AND (o.released_at IS NOT NULL OR DATEDIFF_BIG(MICROSECOND, o.expires_at, @now) > {leases})
