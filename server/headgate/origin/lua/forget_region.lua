-- Take out of published keys what one other region has said of them (forget_region.py).
--
-- KEYS     one record per key
-- ARGV     the region's field; then the window of each key
-- Returns  how many keys had a count of that region

local field, found = ARGV[1], 0

-- What the region gave back in the record's current, previous and next cell.
local function refunds_in(packed, sequence)
  local ok, known, _, _, _, current, previous, ahead = pcall(parts, packed)
  if not ok or type(ahead) ~= 'number' then
    return 0, 0, 0
  end
  return seldom.rolled(known, sequence, current, previous, ahead)
end

for index = 1, #KEYS do
  local key = KEYS[index]
  local packed = try('HMGET', key, 'w', field)
  if packed.err then
    seldom.raise_if_forbidden(packed.err)
  end
  local record = not packed.err and packed[1] and packed[2]
    and readable(key, read_window, packed[1], tonumber(ARGV[index + 1]))
  if record then
    local current, previous, ahead = seldom.roll_foreign(packed[2], record.sequence)
    record.f, record.previous_f = max(0, record.f - current), max(0, record.previous_f - previous)
    record.ahead_f = max(0, record.ahead_f - ahead)
    local refunds = record.refunds
    if refunds then
      local current_r, previous_r, ahead_r = refunds_in(packed[2], record.sequence)
      refunds.fr, refunds.previous_fr = max(0, refunds.fr - current_r), max(0, refunds.previous_fr - previous_r)
      refunds.ahead_fr = max(0, refunds.ahead_fr - ahead_r)
    end
    call('HDEL', key, field)
    save_window(key, record)
    if current + previous + ahead > 0 then
      found = found + 1
    end
  end
end

return found
