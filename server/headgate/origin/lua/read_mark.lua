-- This memory, and since which one a peer has told all that it knows (outbox.py).
--
-- KEYS     the exchange hash
-- ARGV     peer
-- Returns  generation; mark

return redis.call('HMGET', KEYS[1], 'g', 'm' .. ARGV[1])
