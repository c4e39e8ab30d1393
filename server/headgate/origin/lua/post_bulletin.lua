-- A node's bulletin, for whoever looks at the region (bulletins.py).
--
-- KEYS     bulletins by run; when each was posted; what is wanted, with until when
-- ARGV     the run; its bulletin, empty at its end; for how many ms one is kept; how many there may be
-- Returns  1 if there is room for it; then the names of what is wanted now

local run, content, kept_ms, most = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

local heard, known, count = redis.call('HGETALL', KEYS[2]), false, 0
for i = 1, #heard, 2 do
  if math.abs(now - tonumber(heard[i + 1])) >= kept_ms then
    redis.call('HDEL', KEYS[1], heard[i])
    redis.call('HDEL', KEYS[2], heard[i])
  else
    known, count = known or heard[i] == run, count + 1
  end
end
local accepted = (known or count < most) and 1 or 0
if content == '' then
  redis.call('HDEL', KEYS[1], run)
  redis.call('HDEL', KEYS[2], run)
elseif accepted == 1 then
  redis.call('HSET', KEYS[1], run, content)
  redis.call('HSET', KEYS[2], run, string.format('%.0f', now))
  redis.call('PEXPIRE', KEYS[1], kept_ms)
  redis.call('PEXPIRE', KEYS[2], kept_ms)
end
local told, wanted = { accepted }, redis.call('HGETALL', KEYS[3])
for i = 1, #wanted, 2 do
  if tonumber(wanted[i + 1]) > now then
    told[#told + 1] = wanted[i]
  end
end
return told
