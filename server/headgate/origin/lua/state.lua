-- What one call brings, and what is kept of it until it is answered.
--
-- KEYS     one per report, in order (or one key that only says where the call belongs); then, if any
--          is published, those of outbox.lua; then those of a feature that adds to a call
-- ARGV[1]  packed: terms, reports, requests: three flat arrays.
--          Terms are what many reports have in common, each once, nine numbers from its place on:
--            0  kind: 0 sliding window, 1 fixed window, 2 bucket
--            1  field: the run's field in the hash (c<component> or d<component>)
--            2  limit, or a bucket's rate    3  window in ms
--            4  precision: P                 5  leaving: 1 in a drain
--            8  within: 1 if all allowances together stay within P
--          of a window:
--            6  publish at: from which t on other regions are told; 0 never
--            7  priority: 1 if urgent, else 0
--          of a bucket:
--            6  burst
--            7  debt: by how many requests late costs may go beyond the burst and P
--          Reports begin with their number, how many of them are buckets, and the number of requests. Then each is read
--          with `flat[at + i]`, where `at` is the place of its first number:
--            0  place of its terms   1  call number
--            2  rest: what is left of its allowance          3  want: what it would like to hold; -1 NOW_AND_THEN
--            4  reset: to which reset of the key it belongs; -1 to whatever the record has
--          of a window:
--            5  number of cells; from 6 on five numbers for each:
--               sequence, total, reserved, seen (highest total seen), sent (highest sent)
--          of a bucket:
--            5  total                6  reserved             7  acknowledged
--            8, 9  answered ms and rest
--            10  since: when the first unacknowledged cost was admitted
--          Requests: for each how many costs it has, then report (from 1 on) and cost of each; a cost of -1 is a PEEK:
--          decided as a cost of 1 would be, and not charged
--          Where the node's region has agreed on a list of shards three more follow: its number; the key that keeps it
--          here (change_list.lua); and the reports whose keys leave this shard (from 1 on)
-- ARGV[2]  packed, or empty: what is demanded back (refund.lua)
-- ARGV[3]  packed, or empty if no key is published: what each key is called between regions, and its priority
-- ARGV[4]  whatever a feature adds to a call
-- Returns  packed, flat: the shard's time;
--          per request 1 if it was charged, else 0
--          per window  sequence; n, t, f; previous n, t, f; more, left; reset; nil, in whose place refunds are put
--          per bucket  n; arrival ms and rest; more, left; reset
--          then what refund.lua adds, then what a feature does
--          More is what was set aside beyond the rest; -1 OVERTAKEN; -2 UNREADABLE, -3 ELSEWHERE, -4 SEALED: nothing
--          was done for this key, the other numbers are 0. Left is what may still be charged or set aside; -1 PLENTY while the limit is far.
--          (n own, t region total, f foreign: the table at the head of common.lua)
--
-- All reports are read and merged first, then requests are charged in their order; then more is set aside, and all are
-- written and answered. Reports of one key share its record.

local FIXED, BUCKET = 1, 2
local FIRST_REPORT = 4
local PEEK = -1
local OVERTAKEN, PLENTY = -1, -1
local ELSEWHERE, SEALED = -3, -4
-- As msgpack has it, and so in what is unreadable: zeros, UNREADABLE in the place of `more`, and that.
local NIL = '\192'

local described, flat, wanted, list_number, list_key, leaving = parts(ARGV[1])
local names = ARGV[3] ~= '' and parts(ARGV[3])
-- A feature that adds to a call stands in a file of its own between these and call.lua, and may set: functions that are
-- called before the first report is read and when all are written; by report, the most that its terms may come to.
local before_reports, after_reports, limit_caps, burst_caps

-- What is returned, in packed pieces: per request, per report, then what is added. With the time before it all is one
-- array of so many numbers.
local reports, buckets, requests = flat[1], flat[2], flat[3]
local charged, answers, added = {}, {}, {}
local numbers = 1 + requests + 11 * (reports - buckets) + 6 * buckets

local function add(...)
  numbers = numbers + select('#', ...)
  added[#added + 1] = pack(...)
end

-- What a report does by its kind:
--   load    read the key's record, unless an earlier report has, and the run's part; nothing where that was not possible
--   merge   take the report in, with what is left of the run's allowance
--   room    what the limit leaves; below 0 where more is used than that
--   charge  so much more
--   finish  set more aside, write and answer
-- `unreadable` is the answer where that was not possible; by what `load` returns instead, those of keys that move.
local window_kind = {
  unreadable = '\0\0\0\0\0\0\0\254\0\0\192',
  [ELSEWHERE] = '\0\0\0\0\0\0\0\253\0\0\192', [SEALED] = '\0\0\0\0\0\0\0\252\0\0\192',
}
local bucket_kind = {
  unreadable = '\0\0\0\254\0\0', [ELSEWHERE] = '\0\0\0\253\0\0', [SEALED] = '\0\0\0\252\0\0',
}
local kinds = { [0] = window_kind, [FIXED] = window_kind, [BUCKET] = bucket_kind }

-- The terms by their place, and what all their reports have in common beside them: the window in which the
-- shard is, and how much of it is left.
local terms_at = {}
for place = 1, #described, 9 do
  local kind, window, sixth = described[place], described[place + 3], described[place + 6]
  terms_at[place] = {
    kind = kinds[kind], field = described[place + 1], limit = described[place + 2], window = window,
    sequence = floor(now / window), left = window - now % window, precision = described[place + 4],
    leaving = described[place + 5] == 1, fixed = kind == FIXED, publish_at = sixth, burst = sixth,
    debt = described[place + 7], within = described[place + 8] == 1,
  }
end

-- Whether a record of the key may begin here, by the list that the node goes by: from then on none may by an earlier
-- one. A key that leaves begins where it belongs.
local by_latest
local function may_begin(key)
  if by_latest == nil then
    by_latest = goes_by(list_key, list_number)
  end
  if not by_latest then
    return false
  end
  for index = 1, #leaving do
    if KEYS[leaving[index]] == key then
      return false
    end
  end
  return true
end

-- What stands under a key is of another type, unless it may not be read at all.
local function not_a_record(key, text)
  seldom.raise_if_forbidden(text)
  unreadable_keys[#unreadable_keys + 1] = key
end
