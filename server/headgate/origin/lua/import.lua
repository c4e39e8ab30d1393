-- Merge what other regions have said of their cells; never published again.
--
-- KEYS     one per count, in order
-- ARGV[1]  flat, per count: field of the region (empty: our own, back from a peer), window,
--          sequence, total

local flat = parts(ARGV[1])

-- The region's own total, back from a peer. It was counted here once: what is missing of it now was
-- lost, and counts again as unattributed (l).
local function merge_own(record, sequence, total)
  if sequence == record.sequence then
    if total > record.t then
      record.l, record.t = record.l + total - record.t, total
    end
  elseif sequence == record.sequence - 1 and total > record.previous_t then
    record.previous_l, record.previous_t = record.previous_l + total - record.previous_t, total
  end
end

-- The region's current and previous count in the record's cells.
local function roll_foreign(packed, sequence)
  if not packed then
    return 0, 0
  end
  local known, current, previous = field_numbers(packed)
  if known == sequence then
    return current, previous
  end
  return 0, known == sequence - 1 and current or 0
end

local function merge_foreign(record, packed, sequence, total)
  local current, previous = roll_foreign(packed, record.sequence)
  if sequence == record.sequence and total > current then
    record.f, current = record.f + total - current, total
  elseif sequence == record.sequence - 1 and total > previous then
    record.previous_f, previous = record.previous_f + total - previous, total
  end
  return pack(record.sequence, current, previous)
end

local record = {}
for index = 1, #KEYS do
  local key, at = KEYS[index], 4 * (index - 1)
  local field, sequence, total = flat[at + 1], flat[at + 3], flat[at + 4]
  local packed = try('HMGET', key, 'w', field)
  record.window = flat[at + 2]
  -- A record that can't be read is left to the next call that reports its key.
  if not packed.err and readable(key, read_window, record, packed[1]) then
    if not come_to(record, key, field) then
      packed = call('HMGET', key, 'w', field)
    end
    if field == '' then
      merge_own(record, sequence, total)
      save_window(key, record)
    else
      save_window(key, record, field, merge_foreign(record, packed[2], sequence, total))
    end
  end
end
