-- What one call brings, and what is kept of it until it is answered.
--
-- KEYS     one per report, in order (or one key that only says where the call belongs); then, if any
--          is published, those of outbox.lua; then those of a feature that adds to a call
-- ARGV[1]  packed: terms, then reports: two flat arrays.
--          Terms are what many reports have in common, each once. Read with `terms[place + i]`:
--            0  kind: 0 sliding window, 1 fixed window, 2 bucket
--            1  field: the run's field in the hash (c<component> or d<component>)
--            2  limit, or a bucket's rate    3  window in ms
--            4  precision: P                 5  leaving: 1 in a drain
--          of a window:
--            6  publish at: from which t on other regions are told; 0 never
--            7  priority: 1 if urgent, else 0
--          of a bucket:
--            6  burst
--            7  debt: by how many requests late costs may go beyond the burst and P
--          Reports begin with their number, how many of them are buckets, and the number of requests. Then each is read
--          with `flat[at + i]`, where `at` is the place of its first number:
--            0  place of its terms
--            1  when its wants are decided: 0 it has none; above 0 at once, for the request of that number, which has
--               no other want; LATER (-1) when all reports are merged
--            2  the cost of that want; -1 is a PEEK: decided as a cost of 1 would be, and not charged
--            3  call number          4  held: the grant in use
--            5  reset: to which reset of the key it belongs; -1 to whatever the record has
--          of a window:
--            6  number of cells; from 7 on five numbers for each:
--               sequence, total, reserved, seen (highest total seen), sent (highest sent)
--          of a bucket:
--            6  total                7  reserved                 8  acknowledged
--            9, 10  answered ms and rest
--           11  since: when the first unacknowledged cost was admitted
-- ARGV[2]  packed, or empty: the requests that are decided later, flat: which (from 1 on), its number of wants, then report
--          (from 1 on) and cost of each
-- ARGV[3]  packed, or empty: what is asked ahead, flat: report (from 1 on), requests, cost of each
-- ARGV[4]  packed, or empty: what is demanded back (refund.lua)
-- ARGV[5]  packed, or empty if no key is published: what each key is called between regions, and its priority
-- ARGV[6]  whatever a feature adds to a call
-- Returns  packed, flat: the shard's time;
--          per request 1 if it was charged, else 0
--          per window  sequence; n, t, f; previous n, t, f; grant; reset; nil, in whose place refunds are put
--          per bucket  n; arrival ms and rest; grant; reset
--          then what refund.lua adds, then what a feature does
--          A grant of -2 is UNREADABLE: nothing was done for this key, the other numbers are 0.
--          (n own, t region total, f foreign: the table at the head of common.lua)
--
-- A report is read, merged, charged with what one request wants of it, written and answered at once, in tables that the next
-- one uses again: keys are independent. It is kept for LATER, in tables of its own, only when another report has its key,
-- something is asked ahead, or a request wants it that wants something else too or that is not the only one.

local FIXED, BUCKET = 1, 2
local FIRST_REPORT = 4
local LATER = -1
local PEEK = -1
local NO_GRANT = -1
-- As msgpack has it, and so in what is unreadable: zeros, UNREADABLE in the grant's place, and that.
local NIL = '\192'

local terms, flat = parts(ARGV[1])
local deferred, open_records, changed = {}, {}, {}
-- A feature that adds to a call stands in a file of its own between these and call.lua, and may set: functions that are
-- called before the first report is read and when all are written; by report, the most that its terms may come to.
local before_reports, after_reports, limit_caps, burst_caps

-- What is returned, in packed pieces: the time, one per request, one per report, then what is added. All numbers are
-- one array.
local reports, buckets, requests = flat[1], flat[2], flat[3]
local out, first_answer = { bytes_of[now] }, 1 + requests
local numbers = 1 + requests + 10 * (reports - buckets) + 5 * buckets
for at = 2, first_answer + reports do
  out[at] = ''
end

local function add(...)
  numbers = numbers + select('#', ...)
  out[#out + 1] = pack(...)
end

-- What a report does by its kind, each given the report:
--   load    read a record and a run's part; whether that was possible
--   merge   take the report in, and renew its grant
--   fits    whether so much more stays within the limit
--   charge  so much more
--   finish  write and answer
-- `unreadable` is the answer where that was not possible, `passing` the report that is done at once.
local window_kind = { unreadable = '\0\0\0\0\0\0\0\254\0\192', passing = { record = {}, component = {} } }
local bucket_kind = { unreadable = '\0\0\0\254\0', passing = { record = {}, component = {} } }
window_kind.passing.kind, bucket_kind.passing.kind = window_kind, bucket_kind

-- What stands under a key is of another type, unless it may not be read at all.
local function not_a_record(key, text)
  raise_if_forbidden(text)
  unreadable_keys[#unreadable_keys + 1] = key
  return false
end

-- A report that is kept, with a record that all reports of its key share. Nothing if that can't be read.
local function open_later(kind, key, field, place, limit)
  local record, component = open_records[key], {}
  if not record then
    record = { components = {} }
    open_records[key] = record
    record.readable = kind.load(record, component, key, field, place, limit)
  elseif record.readable and not record.components[field] then
    record.readable = kind.load({}, component, key, field, place, limit)
  elseif record.readable then
    component = record.components[field]
  end
  if record.readable then
    record.components[field] = component
    return { kind = kind, record = record, component = component }
  end
end
