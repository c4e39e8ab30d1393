-- A peer has all up to a change (outbox.py).
--
-- KEYS     the exchange hash
-- ARGV     lane; peer; generation; since; until
-- Returns  1, or 0 where the memory is another one or the cursor was moved

local hash, lane, peer = KEYS[1], ARGV[1], ARGV[2]
if redis.call('HGET', hash, 'g') ~= ARGV[3] then
  return 0
end
if (redis.call('HGET', hash, 'a' .. lane .. peer) or '0') ~= ARGV[4] then
  return 0
end
redis.call('HSET', hash, 'a' .. lane .. peer, ARGV[5])
return 1
