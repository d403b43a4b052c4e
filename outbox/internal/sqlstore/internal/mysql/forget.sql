-- A part of mark, which deletes attempts that are neither among the first nor among the latest.
{bounded} DELETE {hint} a FROM {results_as_rows} AS x STRAIGHT_JOIN {attempts} AS a FORCE INDEX (PRIMARY)
	ON a.message = x.seq AND a.attempt = x.attempts + 1 - {last_attempts}
WHERE FIND_IN_SET(x.seq, @tickslot_marked) AND a.attempt > {first_attempts};
