greatest(o.renewed_at, CASE WHEN o.released_at IS NULL THEN o.expires_at END)
	< {now} - {leases} * interval '1 microsecond'
