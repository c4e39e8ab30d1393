-- A peer has told all that it knows (outbox.py).
--
-- KEYS     the exchange hash
-- ARGV     peer; mark

redis.call('HSET', KEYS[1], 'm' .. ARGV[1], ARGV[2])
return 1
