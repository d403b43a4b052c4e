-- It locks the gap in which the row would be, as append.sql does.
INSERT INTO {inbox} (consumer, message_id)
SELECT {consumer}, {id}
WHERE NOT EXISTS (SELECT 1 FROM {inbox} AS i WITH (UPDLOCK, HOLDLOCK)
	WHERE i.consumer = {consumer} AND i.message_id = {id})
