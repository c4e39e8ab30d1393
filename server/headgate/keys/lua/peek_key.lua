-- One limit key's record as it stands. Changes nothing (peek_key.py).
--
-- KEYS     the record
-- ARGV     how many fields are shown at most
-- Returns  the shard's time; how many fields there are, -1 if it is no hash; names and values of all, or of the
--          totals alone if there are too many

local key = KEYS[1]
local fields = redis.pcall('HLEN', key)
if type(fields) ~= 'number' then
  return { now, -1 }
end
if fields <= tonumber(ARGV[1]) then
  return { now, fields, unpack(redis.call('HGETALL', key)) }
end
local totals = redis.call('HMGET', key, 'w', 'b')
return { now, fields, 'w', totals[1] or '', 'b', totals[2] or '' }
