-- What to tell a peer of published keys (window_record.py); names whose records are gone are forgotten.
--
-- KEYS     the index; then one record per name
-- ARGV     the peer's field; then the names
-- Returns  packed, flat, seven per name: 1 if there is a record that can be read, else 0; sequence, t,
--          previous t; the peer's sequence, current and previous

local index, field = KEYS[1], ARGV[1]
local out, record = {}, {}
for i = 2, #KEYS do
  local packed = try('HMGET', KEYS[i], 'w', field)
  local at = 7 * (i - 2)
  local found = not packed.err and packed[1] and readable(KEYS[i], read_window, record, packed[1])
  for offset = 1, 7 do
    out[at + offset] = 0
  end
  if found then
    out[at + 1], out[at + 2], out[at + 3], out[at + 4] = 1, record.sequence, record.t, record.previous_t
    local current, previous, ahead = roll_foreign(packed[2], record.sequence)
    if ahead > 0 then
      out[at + 5], out[at + 6], out[at + 7] = record.sequence + 1, ahead, current
    elseif current + previous > 0 then
      out[at + 5], out[at + 6], out[at + 7] = record.sequence, current, previous
    end
  elseif not packed.err and not packed[1] then
    call('ZREM', index, ARGV[i])
  end
end
return pack(out)
