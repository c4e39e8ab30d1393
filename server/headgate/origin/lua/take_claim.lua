-- A name that can be taken once (take_claim.py).
--
-- KEYS     the name; the list of shards (change_list.lua)
-- ARGV     the value; when it expires, by this clock; the number of the list by which it belongs here; 1 if it leaves
-- Returns  0 if it is the caller's, 1 if another value has it, 2 if its time is up, 3 if it can't be taken here; the value
--          that it has

local left = tonumber(ARGV[2]) - now
if left <= 0 then
  return { 2, '' }
end
-- A hash, as all that is kept here: no further right is needed for it.
local held = redis.call('HGET', KEYS[1], 'v')
if held then
  return { held == ARGV[1] and 0 or 1, held }
end
if not goes_by(KEYS[2], tonumber(ARGV[3])) or ARGV[4] == '1' then
  return { 3, '' }
end
redis.call('HSET', KEYS[1], 'v', ARGV[1])
redis.call('PEXPIRE', KEYS[1], left)
return { 0, ARGV[1] }
