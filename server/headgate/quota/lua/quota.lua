-- Quotas (store.py). Beside the limit keys a shard has
--   the quota hash
--     g         drawn when this memory began
--     n         the fence of the latest keeper
--     d         the deadlines: until when shares hold, with and without what was taken from lost regions; and the
--               share of keys that have none of their own, with the time two windows after which it is theirs; and the
--               number of the list of shards by which all of it was told
--     s<name>   a key's own share, with and without what was taken; until when it holds
--     x         how often a busy key was not noted
--     and on the first shard of the region's list the keeper's store:
--     l         who keeps the slices, and until when
--     m         the mark;  r<name>  what was given of a key;  i<peer>  a message for the keeper
--     a<peer>   which message the keeper has taken in last
--   the busy keys: a sorted set of names, by when they were noted
-- and in a limit key's record the field
--   q           kind, limit, burst, window; span, offered in it and in the one before; when it was noted as busy

local WHOLE = 1000000
local SHORTEST_SPAN_MS = 10000
local NOTED_EVERY_MS = 1000
local BUSY_MS = 10000
local MOST_BUSY = 100000
local FOREVER_MS = 1e15

-- The weight of a previous window's count when `left` ms of the current one are left.
local function weighted(previous, left, window)
  return (multiply_divide(previous, left, 0, window))
end

-- The parts of a value that somebody else may have garbled: nothing then.
local function some_parts(packed)
  if not packed then
    return
  end
  local all = { pcall(parts, packed) }
  for index = 2, #all do
    if type(all[index]) ~= 'number' then
      return
    end
  end
  if all[1] and #all > 1 then
    return unpack(all, 2)
  end
end

-- What is in force of a key, until when, and whether its own share has run out. `came_by`: the number of the list by which
-- it came here, 0 if it was here before.
local function share_in_force(deadlines, own, floor_share, window, came_by)
  local taken_until, until_ms, unknown, settled, number = some_parts(deadlines)
  if not settled then
    taken_until, until_ms, unknown, settled = 0, 0, 0, 0
  end
  if came_by > (number or 0) then
    return floor_share, 0, false
  end
  local share, lasting, own_until
  if own then
    share, lasting, own_until = some_parts(own)
    own_until = own_until or 0
  else
    share = now >= settled + 2 * window and unknown or floor_share
    lasting, own_until = share, FOREVER_MS
  end
  if now >= own_until then
    return floor_share, 0, true
  end
  taken_until = min(taken_until, until_ms)
  if now < taken_until and share ~= lasting then
    return share, min(taken_until, own_until), false
  elseif now < until_ms then
    return lasting, min(until_ms, own_until), false
  end
  return floor_share, 0, false
end

-- The span of now, and what was offered in it and in the one before.
local function roll_offered(window, span, current, previous)
  local length = max(window, SHORTEST_SPAN_MS)
  local sequence = floor(now / length)
  if sequence > span then
    current, previous = 0, sequence == span + 1 and current or 0
  elseif sequence < span - 1 then
    current, previous = 0, 0
  else
    sequence = span
  end
  return sequence, current, previous, length
end

-- What was offered within the last span.
local function in_span(current, previous, length)
  return current + weighted(previous, length - now % length, length)
end
