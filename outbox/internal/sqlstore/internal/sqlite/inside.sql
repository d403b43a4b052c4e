m.seq < coalesce((SELECT e.seq FROM edge AS e), 9223372036854775807)
