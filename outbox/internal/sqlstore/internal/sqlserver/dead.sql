{begin}
SELECT COUNT_BIG(*), COALESCE(MAX(p.seq), 0) FROM (
	SELECT TOP ({limit}) m.seq FROM {messages} AS m WHERE m.state = 'dead'{where} ORDER BY m.seq) AS p;
