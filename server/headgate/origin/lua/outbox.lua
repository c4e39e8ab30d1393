-- What a shard has to tell other regions (outbox.py). Two kinds of keys, beside the limit keys:
--   the exchange hash
--     n<lane>        the number of the newest change
--     a<lane><peer>  up to which change the peer has acknowledged all
--     u<lane><peer>  up to which change names go with the peer's own components
--     l<lane><peer>  who serves the peer, and until when
--     m<peer>        the mark: since which memory the peer has told all that it knows
--     w<peer>        what the peer asked for everything with, last
--     b<peer>        the latest beat of the peer's region
--     g              drawn when this memory began
--   an index per lane: a sorted set of names, by the number of their last change
-- In KEYS they follow one another: the hash, the index of lane 0, that of lane 1.

-- A published key has changed. `first` is the place of the hash in KEYS.
local function note_change(first, lane, name)
  local number = redis.call('HINCRBY', KEYS[first], 'n' .. lane, 1)
  redis.call('ZADD', KEYS[first + 1 + lane], number, name)
end
