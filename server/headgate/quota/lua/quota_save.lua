-- What the keeper has the store keep (save.py).
--
-- KEYS     the quota hash
-- ARGV     fence; generation; mark; how many rows; per row its name, what the store has of it, what it is to have; then
--          per message that was taken in its peer, and which one it was
-- Returns  1, or 0 where another keeper is there, or the memory is another one; then, of each row that was left alone,
--          its name and what the store has

local hash = KEYS[1]
local known = redis.call('HMGET', hash, 'n', 'g')
if known[1] ~= ARGV[1] or known[2] ~= ARGV[2] then
  return { 0 }
end
local out, rows = { 1 }, tonumber(ARGV[4])
for at = 5, 4 + 3 * rows, 3 do
  local field = 'r' .. ARGV[at]
  local stored = redis.call('HGET', hash, field) or ''
  if stored ~= ARGV[at + 1] then
    out[#out + 1], out[#out + 2] = ARGV[at], stored
  elseif ARGV[at + 2] ~= '' then
    redis.call('HSET', hash, field, ARGV[at + 2])
  else
    redis.call('HDEL', hash, field)
  end
end
if ARGV[3] ~= '' then
  redis.call('HSET', hash, 'm', ARGV[3])
else
  redis.call('HDEL', hash, 'm')
end
for at = 5 + 3 * rows, #ARGV, 2 do
  redis.call('HSET', hash, 'a' .. ARGV[at], ARGV[at + 1])
  redis.call('HDEL', hash, 'i' .. ARGV[at])
end
return out
