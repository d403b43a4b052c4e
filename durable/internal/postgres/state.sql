-- A part of runs.sql: the newest runs of a state, of which there are few, or a backlog. "which" is
-- where the condition on the state and the filter are filled in, "after" the one on the id.
--
-- Few are found by an index of their state, and sorted. Of a backlog that would read all, so the
-- newest are looked for among the newest of all runs, up to {max_scanned} of them. Only if these
-- are not enough, because the backlog is old, is all of it sorted.
WITH sample AS MATERIALIZED (
	SELECT r.id FROM {runs} AS r WHERE /* which */ LIMIT {max_sorted} + 1
),
newest AS MATERIALIZED (
	SELECT r.* FROM (
		SELECT r.* FROM {runs} AS r WHERE (SELECT count(*) > {max_sorted} FROM sample) /* after */
		ORDER BY r.id DESC LIMIT {max_scanned}
	) AS r WHERE /* which */ ORDER BY r.id DESC LIMIT $1::bigint
)
SELECT r.* FROM {runs} AS r WHERE r.id = ANY (ARRAY(
	SELECT s.id FROM sample AS s WHERE (SELECT count(*) <= {max_sorted} FROM sample) ORDER BY s.id DESC LIMIT $1::bigint
))
UNION ALL
SELECT n.* FROM newest AS n WHERE (SELECT count(*) = $1::bigint FROM newest)
UNION ALL
(SELECT r.* FROM {runs} AS r
	WHERE (SELECT count(*) > {max_sorted} FROM sample) AND (SELECT count(*) < $1::bigint FROM newest) AND /* which */
	ORDER BY r.id + 0 DESC LIMIT $1::bigint)
