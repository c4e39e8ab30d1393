-- What changed in the region's map after a change (region_map.py).
--
-- KEYS     the map; names by their change's number; about it (write_map.lua)
-- ARGV     the last change that the reader knows; how many entries
-- Returns  generation, version, the shard's time, the change of the last entry; packed, flat, four per entry: name,
--          value, expires, stamp

local known = redis.call('HMGET', KEYS[3], 'g', 'v')
local version = tonumber(known[2] or 0)
local names = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. ARGV[1], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[2])
local out, reached = {}, version
for i = 1, #names, 2 do
  local packed = redis.call('HGET', KEYS[1], names[i])
  if packed then
    local value, expires, stamp = cmsgpack.unpack(packed)
    local at = #out
    out[at + 1], out[at + 2], out[at + 3], out[at + 4] = names[i], value, expires, stamp
  end
  reached = tonumber(names[i + 1])
end
return { known[1] or '', version, now, reached, cmsgpack.pack(out) }
