-- Stores that a grant of name ?1 was released as succeeded.
UPDATE {table} SET succeeded_at = {now} WHERE resource_name = ?1 AND slot = -1
