-- Who served peers, or kept the slices, leaves: another one need not wait for the end of its leases.
--
-- KEYS     the exchange hash; the quota hash
-- ARGV     who leaves; then the peers

local function give_back(hash, field)
  local lease = redis.call('HGET', hash, field)
  if lease and cmsgpack.unpack(lease) == ARGV[1] then
    redis.call('HDEL', hash, field)
  end
end
for index = 2, #ARGV do
  give_back(KEYS[1], 'l' .. ARGV[index])
end
give_back(KEYS[2], 'l')
return 1
