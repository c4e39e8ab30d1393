-- The next records of this shard that may have to move, for the one node that moves them (move_records.py).
--
-- KEYS     the list (change_list.lua); then what to forget when all have moved
-- ARGV     the list's number; the run; the cursor of the page to return, 0 if all have moved, -1 for wherever the walk
--          is; for how many ms the run alone does it; the pattern of all keys; about how many to look at; how many bytes
--          of each name to leave out
-- Returns  1 if it is the run's to move them; this page's cursor; the next one's, 0 if there is none; names

local number, run, after = tonumber(ARGV[1]), ARGV[2], ARGV[3]
local n, w, m, c, o, u = unpack(redis.call('HMGET', KEYS[1], 'n', 'w', 'm', 'c', 'o', 'u'))
if tonumber(n or 0) ~= number or tonumber(w or 0) == number then
  return { 0, 0, 0, {} }
end
local under_way = tonumber(m or 0) == number
local mine = under_way and o == run
if under_way and not mine and tonumber(u) > now then
  return { 0, 0, 0, {} }
end
if mine and after == '0' then
  redis.call('HSET', KEYS[1], 'w', number)
  for index = 2, #KEYS do
    redis.call('DEL', KEYS[index])
  end
  return { 0, 0, 0, {} }
end
local cursor = '0'
if mine and after ~= '-1' then
  cursor = after
elseif under_way then
  cursor = c
end
redis.call('HSET', KEYS[1], 'm', number, 'c', cursor, 'o', run, 'u', string.format('%.0f', now + tonumber(ARGV[4])))
local page = redis.call('SCAN', cursor, 'MATCH', ARGV[5], 'COUNT', ARGV[6])
local names, first = {}, tonumber(ARGV[7]) + 1
for index, key in ipairs(page[2]) do
  names[index] = string.sub(key, first)
end
return { 1, cursor, page[1], names }
