-- A page of what the store has of quotas (rows.py).
--
-- KEYS     the quota hash
-- ARGV     where the page begins; about how many fields to look at
-- Returns  where the next one begins, 0 after the last; names, each with its rows

local found = redis.call('HSCAN', KEYS[1], ARGV[1], 'MATCH', 'r*', 'COUNT', ARGV[2])
local out = { found[1] }
for at = 1, #found[2], 2 do
  out[#out + 1], out[#out + 2] = string.sub(found[2][at], 2), found[2][at + 1]
end
return out
