-- The list of shards that this one was last told of (read_list.py).
--
-- KEYS     the list (change_list.lua)
-- Returns  number; the shards; those that keys move from

return redis.call('HMGET', KEYS[1], 'n', 's', 'b')
