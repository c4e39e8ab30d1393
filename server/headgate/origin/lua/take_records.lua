-- Seal records and return what they hold (move_records.py).
--
-- KEYS     the list (change_list.lua); then the records
-- ARGV     the list's number
-- Returns  for each that is there: which it is, from 1 on; for how many ms it would be kept; its fields and values
--
-- A sealed record begins with the highest format, which nobody reads (common.lua), and has in its field s what it began
-- with. Any other hash is copied as it is: a claim never changes.

local SEALED = '\204\255'

if tonumber(redis.call('HMGET', KEYS[1], 'f')[1] or 0) ~= tonumber(ARGV[1]) then
  return {}
end
local taken = {}
for index = 2, #KEYS do
  local key = KEYS[index]
  local fields = redis.pcall('HGETALL', key)
  -- What is no hash is nobody's record.
  if not fields.err and #fields > 0 then
    local totals, began
    for at = 1, #fields, 2 do
      if fields[at] == 'w' or fields[at] == 'b' then
        totals = at
      elseif fields[at] == 's' then
        began = at
      end
    end
    if totals and began then
      fields[totals + 1] = fields[began + 1]
      table.remove(fields, began)
      table.remove(fields, began)
    elseif totals then
      redis.call('HSET', key, 's', fields[totals + 1], fields[totals], SEALED)
    end
    taken[#taken + 1] = { index - 1, redis.call('PTTL', key), fields }
  end
end
return taken
