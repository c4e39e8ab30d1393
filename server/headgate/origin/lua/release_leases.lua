-- An exchanger that served peers leaves: another one need not wait for the end of its leases (release_leases.py).
--
-- KEYS     the exchange hash
-- ARGV     who leaves; then the peers

for index = 2, #ARGV do
  local field = 'l' .. ARGV[index]
  local lease = redis.call('HGET', KEYS[1], field)
  if lease and cmsgpack.unpack(lease) == ARGV[1] then
    redis.call('HDEL', KEYS[1], field)
  end
end
return 1
