-- What one peer has not acknowledged yet, for the exchanger that serves it (outbox.py).
--
-- KEYS     the exchange hash; the indexes
-- ARGV     priority; peer; who asks; for how many ms a lease is given; a generation, if there is none; how many names;
--          behind which change, if not behind what is acknowledged
-- Returns  the shard's time; 1 if the lease is the asker's, else 0; acknowledged; until; latest; generation;
--          mark; walk; walk until; beat; then, with the lease, the names, each with its change's number

local hash, priority, peer, owner, lease_ms = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local index = KEYS[2 + tonumber(priority)]
-- How long all of it outlives the last exchanger.
local KEPT_MS = 30 * 86400000

local leased = 1
local lease = redis.call('HGET', hash, 'l' .. peer)
if lease then
  local holder, held_until = cmsgpack.unpack(lease)
  -- One that was given by a clock that is ahead binds nobody.
  if holder ~= owner and held_until > now and held_until <= now + lease_ms then
    leased = 0
  end
end
if leased == 1 then
  redis.call('HSETNX', hash, 'g', ARGV[5])
  redis.call('HSET', hash, 'l' .. peer, cmsgpack.pack(owner, now + lease_ms))
  redis.call('PEXPIRE', hash, KEPT_MS)
  redis.call('PEXPIRE', index, KEPT_MS)
end

local known = redis.call('HMGET', hash, 'a' .. priority .. peer, 'n' .. priority, 'g', 'm' .. peer, 'w' .. peer,
  'u' .. priority .. peer, 'b' .. peer)
local acknowledged = known[1] or '0'
local latest = known[2] or '0'
local names, reached = {}, acknowledged
if leased == 1 then
  local from = tonumber(ARGV[7]) > tonumber(acknowledged) and ARGV[7] or acknowledged
  names = redis.call('ZRANGEBYSCORE', index, '(' .. from, '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[6])
  reached = names[#names] or (tonumber(latest) > tonumber(acknowledged) and latest or acknowledged)
end
return {
  now, leased, acknowledged, reached, latest, known[3] or '', known[4] or '', known[5] or '', known[6] or '0',
  known[7] or '0', unpack(names),
}
