-- The shard's own clock: the time of every limit key on it. Asked once per script, before any
-- write, so that one call sees one instant. (Tests put another clock here.)
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
