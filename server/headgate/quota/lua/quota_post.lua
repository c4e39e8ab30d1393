-- A peer's message for the keeper, which another process has the lease of (post.py).
--
-- KEYS     the quota hash
-- ARGV     peer; message
-- Returns  which of the peer's messages the keeper has taken in last, or nothing

redis.call('HSET', KEYS[1], 'i' .. ARGV[1], ARGV[2])
return redis.call('HGET', KEYS[1], 'a' .. ARGV[1]) or ''
