-- Tell a peer everything from the beginning (outbox.py).
--
-- KEYS     the exchange hash
-- ARGV     peer; what it asked with, or nothing: then everything is told again, and that is all

local hash, peer, walk = KEYS[1], ARGV[1], ARGV[2]
if walk ~= '' and redis.call('HGET', hash, 'w' .. peer) == walk then
  return 0
end
for priority = 0, 1 do
  redis.call('HSET', hash, 'a' .. priority .. peer, '0')
  if walk ~= '' then
    redis.call('HSET', hash, 'u' .. priority .. peer, redis.call('HGET', hash, 'n' .. priority) or '0')
  end
end
if walk ~= '' then
  redis.call('HSET', hash, 'w' .. peer, walk)
end
return 1
