-- The keeper of the region's slices leaves: the next one need not wait for the end of its lease (lease.py).
--
-- KEYS     the quota hash
-- ARGV     who leaves

local lease = redis.call('HGET', KEYS[1], 'l')
if lease and cmsgpack.unpack(lease) == ARGV[1] then
  redis.call('HDEL', KEYS[1], 'l')
end
return 1
