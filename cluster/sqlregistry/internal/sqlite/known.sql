SELECT EXISTS (SELECT 1 FROM {table} WHERE sort = 'host' AND id = ?1), {now}
