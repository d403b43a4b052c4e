DATEDIFF_BIG(MICROSECOND, o.renewed_at, @now) > {hosts} AND DATEDIFF_BIG(MICROSECOND, o.renewed_at, @now) > 3 * o.ttl
