-- How far the walk in the order of the rows goes: what is behind it is looked for key by key.
edge AS MATERIALIZED (
	SELECT m.seq FROM {messages} AS m WHERE m.state = 'pending' ORDER BY m.seq OFFSET {window} LIMIT 1
)
