-- What one call brings, and what is kept of it until it is answered.
--
-- KEYS     one per report, in order (or one key that only says where the call belongs); then, if any
--          is published, those of outbox.lua
-- ARGV[1]  packed: the number of reports, how many of them are buckets, then each report, flat.
--          Read with `flat[at + i]`, where `at` is the place of the report's first number:
--            0  kind: 0 sliding window, 1 fixed window, 2 bucket
--            1  deferred: 1 if its state is kept until all wants are decided
--            2  field: the run's field in the hash (c<component> or d<component>)
--            3  call number          4  held: the grant in use    5  limit, or a bucket's rate
--            6  window in ms         7  precision: P              8  leaving: 1 in a drain
--          of a window:
--            9  publish at: from which t on other regions are told; 0 never
--           10  name: what the key is called between regions    11  lane: 1 if urgent, else 0
--           12  reset: to which reset of the key it belongs; -1 to whatever the record has
--           13  number of cells; from 14 on five numbers for each:
--               sequence, total, reserved, seen (highest total seen), sent (highest sent)
--          of a bucket:
--            9  burst               10  total                    11  reserved
--           12  acknowledged                                     13, 14  answered ms and rest
--           15  since: when the first unacknowledged cost was admitted
--           16  debt: by how many requests late costs may go beyond the burst and P
--           17  reset, as of a window
-- ARGV[2]  packed: the requests, flat: number of wants, then report (from 1 on) and cost of each;
--          a cost of -1 is a LOOK: decided as a cost of 1 would be, and not charged
-- ARGV[3]  packed: the quotas among the keys, or nothing (quota_call.lua)
-- ARGV[4]  packed, or empty: what is asked ahead, flat: report (from 1 on), requests, cost of each
-- ARGV[5]  packed, or empty: what is demanded back (refund.lua)
-- Returns  packed, flat: the shard's time;
--          per window  sequence; n, t, f; previous n, t, f; grant; reset
--          per bucket  n; arrival ms and rest; grant; reset
--          per request 1 if it was charged, else 0
--          A grant of -2 is UNREADABLE: nothing was done for this key, the other numbers are 0.
--          (n own, t region total, f foreign: the table at the head of common.lua)
--
-- A report is deferred when a want, or what is asked ahead, refers to it or another report has its key. All others are
-- read, merged and written at once.

local FIXED, BUCKET = 1, 2
local FIRST_REPORT = 3
local NO_GRANT = -1

local flat, wants = parts(ARGV[1]), parts(ARGV[2])
local out, written = { 0 }, 2
local deferred, open_records, changed = {}, {}, {}
local passing_record, passing_component = {}, {}

-- Where a report's state is kept: of its own while it is deferred, else in passing. Nothing if the
-- key's record can't be read.
local function open(key, field, later, load, ...)
  if later == 0 then
    if load(passing_record, passing_component, key, field, ...) then
      return passing_record, passing_component
    end
    return
  end
  local record, component = open_records[key], {}
  if not record then
    record = { components = {} }
    open_records[key] = record
    record.readable = load(record, component, key, field, ...)
  elseif record.readable and not record.components[field] then
    record.readable = load({}, component, key, field, ...)
  elseif record.readable then
    return record, record.components[field]
  end
  if record.readable then
    record.components[field] = component
    return record, component
  end
end

-- A report that nobody can act on: its key is answered, its wants are not charged.
local unreadable_component = { n = 0 }
local function nothing() end

local function report_unreadable(index, later, values)
  for at = written, written + values - 1 do
    out[at] = 0
  end
  out[written + values - 2] = UNREADABLE
  if later ~= 0 then
    deferred[index] = {
      component = unreadable_component, own = 0, grant = UNREADABLE, save = nothing, answer = nothing,
    }
  end
end
