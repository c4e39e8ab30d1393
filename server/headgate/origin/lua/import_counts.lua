-- Merge what other regions have said of their cells; never published again.
--
-- KEYS     the exchange hash; the indexes; when other regions were heard; the list of shards (change_list.lua); then one
--          per count, in order
-- ARGV[1]  flat, per count: field of the region (empty: our own, back from a peer), window,
--          sequence, total, name (empty: not published here), reset, refunded
-- ARGV[2]  whose beat comes with it, if any; ARGV[3] the beat
-- ARGV[4]  whose room new records take; ARGV[5] how many bytes of it there are, at once and again per day (-1: no bound);
--          ARGV[6] what one takes beside its name, twice; ARGV[7] seconds of a day
-- ARGV[8]  the number of the list by which the keys are placed; ARGV[9] 1 if they leave this shard
-- Returns  how many counts were left out, because there was no room for another record; then the place of each whose
--          record is not here and may not begin here, and below 0 of each whose record is on its way to another shard

local FIRST_COUNT = 5
local room_field, most_bytes, left_out = 'k' .. ARGV[4], tonumber(ARGV[5]), 0
local flat, not_here = parts(ARGV[1]), {}
if ARGV[2] ~= '' then
  call('HSET', KEYS[1], 'b' .. ARGV[2], ARGV[3])
  call('ZADD', KEYS[4], now, ARGV[2])
  call('PEXPIRE', KEYS[4], 86400000)
end

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

-- What another region gave back in the record's current, previous and next cell, from its field.
local function roll_foreign_refunds(packed, sequence)
  local ok, known, current, previous, ahead, _
  if packed then
    ok, known, _, _, _, current, previous, ahead = pcall(parts, packed)
  end
  if not ok or type(ahead) ~= 'number' then
    return 0, 0, 0
  end
  return seldom.rolled(known, sequence, current, previous, ahead)
end

local function merge_foreign(record, packed, sequence, total, refunded)
  local current, previous, ahead = seldom.roll_foreign(packed, record.sequence)
  local current_r, previous_r, ahead_r = roll_foreign_refunds(packed, record.sequence)
  if sequence == record.sequence and total > current then
    record.f, current = record.f + total - current, total
  elseif sequence == record.sequence - 1 and total > previous then
    record.previous_f, previous = record.previous_f + total - previous, total
  elseif sequence == record.sequence + 1 and total > ahead then
    record.ahead_f, ahead = record.ahead_f + total - ahead, total
  end
  if sequence == record.sequence and min(refunded, current) > current_r then
    local refunds, known = seldom.refunds_of(record), current_r
    current_r = min(refunded, current)
    refunds.fr = refunds.fr + current_r - known
  elseif sequence == record.sequence - 1 and min(refunded, previous) > previous_r then
    local refunds, known = seldom.refunds_of(record), previous_r
    previous_r = min(refunded, previous)
    refunds.previous_fr = refunds.previous_fr + previous_r - known
  elseif sequence == record.sequence + 1 and min(refunded, ahead) > ahead_r then
    local refunds, known = seldom.refunds_of(record), ahead_r
    ahead_r = min(refunded, ahead)
    refunds.ahead_fr = refunds.ahead_fr + ahead_r - known
  end
  if current_r + previous_r + ahead_r > 0 then
    return pack(record.sequence, current, previous, ahead, current_r, previous_r, ahead_r)
  end
  return pack(record.sequence, current, previous, ahead)
end

-- Bytes of the room that are in use, by now; nothing until the first record is new.
local used
local function take_room(size)
  if most_bytes < 0 then
    return true
  end
  local now_s = floor(now / 1000)
  if not used then
    local packed, since_s = call('HGET', KEYS[1], room_field)
    used = 0
    if packed then
      used, since_s = parts(packed)
      if now_s > since_s then
        used = max(0, used - floor(most_bytes / ARGV[7]) * (now_s - since_s))
      end
    end
  end
  if used + size > most_bytes then
    return false
  end
  used = used + size
  call('HSET', KEYS[1], room_field, pack(used, now_s))
  return true
end

-- Whether a record may begin here.
local by_latest
local function may_begin()
  if by_latest == nil then
    by_latest = has_list(KEYS[FIRST_COUNT], tonumber(ARGV[8]))
  end
  return by_latest and ARGV[9] == '0'
end

-- Whether any other region counts here.
local function counts_abroad(record)
  return record.f + record.previous_f + record.ahead_f > 0
end

for index = FIRST_COUNT + 1, #KEYS do
  local key, at = KEYS[index], 7 * (index - FIRST_COUNT - 1)
  local field, sequence, total, name, reset = flat[at + 1], flat[at + 3], flat[at + 4], flat[at + 5], flat[at + 6]
  local packed = try('HMGET', key, 'w', field)
  if packed.err then
    seldom.raise_if_forbidden(packed.err)
  end
  -- A record that can't be read is left to the next call that reports its key.
  local current = floor(now / flat[at + 2])
  local record, format
  if not packed.err and not packed[1] and not may_begin() then
    not_here[#not_here + 1] = index - FIRST_COUNT
  elseif not packed.err then
    record, format = load_window(key, packed[1], flat[at + 2], current)
  end
  if format == SEALED_FORMAT then
    not_here[#not_here + 1] = FIRST_COUNT - index
  elseif record and not packed[1] and not take_room(ARGV[6] + 2 * #name) then
    left_out = left_out + 1
  elseif record then
    if not seldom.come_to(record, current, key, field) then
      packed = call('HMGET', key, 'w', field)
    end
    local t, previous_t, abroad, known = record.t, record.previous_t, counts_abroad(record), record.reset
    if reset > known then
      -- The key was reset there: what is here is from before.
      record.reset = reset
      call('DEL', key)
      seldom.empty_window(record, record.sequence)
      packed = {}
    end
    if reset < known then
      save_window(key, record)
    elseif field == '' then
      merge_own(record, sequence, total)
      save_window(key, record)
    else
      save_window(key, record, field, merge_foreign(record, packed[2], sequence, total, flat[at + 7]))
    end
    -- The own component is told from now on; and again, when some of it has come back.
    if name ~= '' and (t ~= record.t or previous_t ~= record.previous_t or abroad ~= counts_abroad(record)
      or known ~= record.reset) then
      note_change(1, 0, name)
    end
  end
end

return { left_out, unpack(not_here) }
