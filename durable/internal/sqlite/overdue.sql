SELECT {now}, (SELECT min(next_due_at) FROM {schedules}
	WHERE spec <> '' AND next_due_at <= {now} AND seen_at >= {now} - ?1)
