-- Whether keys may come here by a list of shards, as far as their shares are concerned (ready.py).
--
-- KEYS     the quota hash
-- ARGV     the list's number
-- Returns  1 if the shares in force were told by that list, or none is in force; else 0

local deadlines = redis.call('HMGET', KEYS[1], 'd')[1]
local ok, _, until_ms, _, _, number = pcall(cmsgpack.unpack, deadlines or '')
if not ok or type(until_ms) ~= 'number' or now >= until_ms then
  return 1
end
return (tonumber(number) or 0) >= tonumber(ARGV[1]) and 1 or 0
