-- A server that evicts may delete one of several keys that belong together. These lines delete the
-- remaining ones: hosts and leases return with their next writes, and no row remains that a sweep
-- could not find.
if call('HLEN', hosts) ~= call('HLEN', details) then call('DEL', hosts, details) end
if call('HLEN', leases) ~= call('ZCARD', ends) then call('DEL', leases, ends) end
if call('HLEN', events) ~= call('ZCARD', order) then call('DEL', events, order) end
local count = call('HLEN', runs)
if count ~= call('ZCARD', ended) or count ~= call('ZCARD', timers) then call('DEL', runs, ended, timers) end
if call('HLEN', records) ~= call('ZCARD', ranked) then call('DEL', records, ranked) end
if call('HLEN', buckets) ~= call('ZCARD', gone) then call('DEL', buckets, gone) end
