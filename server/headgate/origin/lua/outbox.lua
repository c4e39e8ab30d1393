-- What a shard has to tell other regions (outbox.py). Two kinds of keys, beside the limit keys:
--   the exchange hash
--     n<priority>        the number of the newest change
--     a<priority><peer>  up to which change the peer has acknowledged all
--     u<priority><peer>  up to which change names go with the peer's own components
--     l<priority><peer>  who serves the peer, and until when
--     m<peer>        the mark: since which memory the peer has told all that it knows
--     w<peer>        what the peer asked for everything with, last
--     b<peer>        the latest beat of the peer's region
--     k<peer>        bytes of records that the peer has made this shard keep lately, and at which second
--     g              drawn when this memory began
--   an index per priority: a sorted set of names, by the number of their last change
-- In KEYS they follow one another: the hash, the index of priority 0, that of priority 1.

-- A published key has changed. `first` is the place of the hash in KEYS.
local function note_change(first, priority, name)
  local number = redis.call('HINCRBY', KEYS[first], 'n' .. priority, 1)
  redis.call('ZADD', KEYS[first + 1 + priority], number, name)
end
