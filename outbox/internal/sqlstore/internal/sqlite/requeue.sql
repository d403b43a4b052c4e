UPDATE {messages} AS m SET state = 'pending', tried = 0, crashes = 0, next_attempt_at = {now},
	requeued_at = {now}, failing_since = NULL, finished_at = NULL, note = {note}
WHERE m.state = 'dead' AND ({older} = 0 OR m.created_at >= {now} - {older}){where};

-- What is left is too old.
SELECT changes(), (SELECT count(*) FROM {messages} AS m WHERE m.state = 'dead'{where});
