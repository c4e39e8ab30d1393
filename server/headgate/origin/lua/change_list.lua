-- The next list of shards, if the one right before it is in force here (change_list.py).
--
-- KEYS     the list: a hash with n, its number; s, the shards; b, those that keys move from, or nothing;
--          f, the fence: the highest number by which anybody has placed a key here; w, the number for which all records
--          have moved; m, c, o, u: the number for which they are being moved, how far that is, who does it, until when
-- ARGV     number; the shards, packed; those that keys move from, packed, or empty
-- Returns  the list that is in force then: number, shards, those that keys move from

local kept = redis.call('HMGET', KEYS[1], 'n', 's', 'b')
if tonumber(kept[1] or 0) == tonumber(ARGV[1]) - 1 and (kept[3] or '') == '' then
  redis.call('HSET', KEYS[1], 'n', ARGV[1], 's', ARGV[2], 'b', ARGV[3], 'f', ARGV[1])
  redis.call('PEXPIRE', KEYS[1], 86400000)
  kept = ARGV
end
return { kept[1] or '', kept[2] or '', kept[3] or '' }
