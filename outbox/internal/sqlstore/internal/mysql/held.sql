-- Keys that are held back. In a list of values the server steps over each of them at once.
{bounded} SELECT {hint} DISTINCT m.retried_key FROM {messages} AS m FORCE INDEX (retried) WHERE m.retried_key > {after}
ORDER BY m.retried_key LIMIT {most_held}
