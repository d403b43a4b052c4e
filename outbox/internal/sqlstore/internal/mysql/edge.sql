(SELECT p.seq FROM {messages} AS p FORCE INDEX (pending) WHERE p.state = 'pending' ORDER BY p.seq LIMIT {window}, 1)
