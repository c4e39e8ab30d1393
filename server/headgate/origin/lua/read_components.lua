-- What to tell a peer of published keys (window_record.py). Names whose records are gone are forgotten; not while keys
-- leave this shard, as what moves has yet to be told from where it goes.
--
-- KEYS     the index; the list of shards (change_list.lua); then one record per name
-- ARGV     the peer's field; then the names
-- Returns  packed, flat, ten per name: 1 if there is a record that can be read, else 0; sequence, t,
--          previous t; the peer's sequence, current and previous; reset; r, previous r

local index, field = KEYS[1], ARGV[1]
local list = redis.call('HMGET', KEYS[2], 'n', 'w', 'b')
local keys_leave = list[3] and list[3] ~= '' and tonumber(list[1] or 0) ~= tonumber(list[2] or 0)
local out = {}
for i = 3, #KEYS do
  local packed = try('HMGET', KEYS[i], 'w', field)
  if packed.err then
    seldom.raise_if_forbidden(packed.err)
  end
  local at = 10 * (i - 3)
  local record = not packed.err and packed[1] and readable(KEYS[i], read_window, packed[1])
  for offset = 1, 10 do
    out[at + offset] = 0
  end
  if record then
    out[at + 1], out[at + 2], out[at + 3], out[at + 4] = 1, record.sequence, record.t, record.previous_t
    out[at + 8] = record.reset
    if record.refunds then
      out[at + 9], out[at + 10] = record.refunds.r, record.refunds.previous_r
    end
    local current, previous, ahead = seldom.roll_foreign(packed[2], record.sequence)
    if ahead > 0 then
      out[at + 5], out[at + 6], out[at + 7] = record.sequence + 1, ahead, current
    elseif current + previous > 0 then
      out[at + 5], out[at + 6], out[at + 7] = record.sequence, current, previous
    end
  elseif not packed.err and not packed[1] and not keys_leave then
    call('ZREM', index, ARGV[i - 1])
  end
end
return pack(out)
