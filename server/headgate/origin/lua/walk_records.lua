-- The next of what this shard has that may have to move, for the one node that moves it (move_records.py).
--
-- KEYS     the list (change_list.lua); the indexes of published keys (outbox.lua), by priority; then what to forget when
--          all have moved
-- ARGV     the list's number; the run; the cursor of the page to return, nothing if all have moved, * for wherever the
--          walk is; for how many ms the run alone does it; the pattern of all keys; about how many to look at; how many
--          bytes of each name to leave out
-- Returns  1 if it is the run's to move them; this page's cursor; the next one's, nothing if there is none; -1 for
--          names of keys, else the priority of published names; names
--
-- A cursor is the number of a round, a colon, and how far that is: published keys first, then all keys, then those that
-- were published meanwhile.

local ROUNDS = { 0, 1, -1, 0, 1 }
local number, run, after = tonumber(ARGV[1]), ARGV[2], ARGV[3]
local n, w, m, c, o, u = unpack(redis.call('HMGET', KEYS[1], 'n', 'w', 'm', 'c', 'o', 'u'))
if tonumber(n or 0) ~= number or tonumber(w or 0) == number then
  return { 0, '', '', -1, {} }
end
local under_way = tonumber(m or 0) == number
local mine = under_way and o == run
if under_way and not mine and tonumber(u) > now then
  return { 0, '', '', -1, {} }
end
if mine and after == '' then
  redis.call('HSET', KEYS[1], 'w', number)
  for index = 4, #KEYS do
    redis.call('DEL', KEYS[index])
  end
  return { 0, '', '', -1, {} }
end
local cursor = '1:0'
if mine and after ~= '*' then
  cursor = after
elseif under_way then
  cursor = c
end
redis.call('HSET', KEYS[1], 'm', number, 'c', cursor, 'o', run, 'u', string.format('%.0f', now + tonumber(ARGV[4])))
local round, at = string.match(cursor, '^(%d+):(%d+)$')
local priority, page = ROUNDS[tonumber(round)], nil
local names = {}
if priority >= 0 then
  page = redis.call('ZSCAN', KEYS[2 + priority], at, 'COUNT', ARGV[6])
  for index = 1, #page[2], 2 do
    names[#names + 1] = page[2][index]
  end
else
  page = redis.call('SCAN', at, 'MATCH', ARGV[5], 'COUNT', ARGV[6])
  local first = tonumber(ARGV[7]) + 1
  for index, key in ipairs(page[2]) do
    names[index] = string.sub(key, first)
  end
end
local following = ''
if page[1] ~= '0' then
  following = round .. ':' .. page[1]
elseif tonumber(round) < #ROUNDS then
  following = string.format('%d:0', round + 1)
end
return { 1, cursor, following, priority, names }
