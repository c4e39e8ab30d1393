-- What one call brings, and what is kept of it until it is answered.
--
-- KEYS     one per report, in order (or one key that only says where the call belongs)
-- ARGV[1]  the number of reports and how many of them are buckets; then each report, flat:
--          kind, deferred, field, number, held, limit or rate, window, precision, leaving;
--          then a window's number of cells and each one's sequence, total, reserved, seen,
--          sent; or a bucket's burst, total, reserved, acknowledged, answered ms and rest, since
-- ARGV[2]  the requests, flat: number of wants, then report and cost of each
-- Returns  packed, flat: the shard's time; per report sequence, n, t, f, previous n, t, f,
--          grant; or n, arrival ms and rest, grant (UNREADABLE in its place: nothing was done
--          for this key); per request 1 if it was charged, else 0
--
-- A report is deferred when a want refers to it or another report has its key: its state is
-- kept until all wants are decided. All others are read, merged and written at once.

local FIXED, BUCKET = 1, 2
local FIRST_REPORT = 3
local NO_GRANT = -1

local flat, wants = parts(ARGV[1]), parts(ARGV[2])
local out, written = { 0 }, 2
local deferred, open_records = {}, {}
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
  for at = written, written + values - 2 do
    out[at] = 0
  end
  out[written + values - 1] = UNREADABLE
  if later ~= 0 then
    deferred[index] = {
      component = unreadable_component, own = 0, grant = UNREADABLE, save = nothing, answer = nothing,
    }
  end
end
