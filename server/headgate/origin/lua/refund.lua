-- What a call's reports demand back (window_record.py, bucket_record.py), and what they are told of it.
--
-- ARGV[2]  packed, or empty where no limit of the call has refunds: per report, flat: its number (from 1 on), the number
--          of demands; then four for each: sequence (0 of a bucket), demanded, settled, refunded (protocol.py)
-- Returns  after all else, per report here, eight: settled, own, r and fr of the current cell, and of the previous one;
--          of a bucket settled, 0, refunded, and five times 0; of one that can't be read zeros
--
-- Nothing of this is made for a call without refunds.

local refund_window, window_refunds, refund_bucket, bucket_refunds, answer_refunds
local demands_at, told_refunds
if ARGV[2] ~= '' then

local NO_REFUNDS = { 0, 0, 0, 0, 0, 0, 0, 0 }
local demands = parts(ARGV[2])
demands_at, told_refunds = {}, {}
do
  local at = 1
  while demands[at] do
    demands_at[demands[at]] = at + 1
    at = at + 2 + 4 * demands[at + 1]
  end
end

local function back_of(component)
  local back = component.back
  if not back then
    back = { r = 0, previous_r = 0, demanded = 0, previous_demanded = 0 }
    component.back = back
  end
  return back
end

-- Take so much out of what the current cell holds, and note whom it was given back to.
local function take_current(record, component, amount)
  local held = record.t - (record.refunds and record.refunds.r or 0)
  local taken = min(amount, held)
  if taken > 0 then
    local refunds, back = seldom.refunds_of(record), back_of(component)
    refunds.r, back.r = refunds.r + taken, back.r + taken
    record.gave_back = true
    return taken
  end
  return 0
end

local function take_previous(record, component, amount)
  local held = record.previous_t - (record.refunds and record.refunds.previous_r or 0)
  local taken = min(amount, held)
  if taken > 0 then
    local refunds, back = seldom.refunds_of(record), back_of(component)
    refunds.previous_r, back.previous_r = refunds.previous_r + taken, back.previous_r + taken
    record.gave_back = true
  end
end

-- What the run was told to have been given back, and is not there any more: the shard lost it.
local function bring_back(record, component, at)
  local sequence, refunded, back = demands[at], demands[at + 3], component.back
  if sequence == record.sequence then
    take_current(record, component, refunded - (back and back.r or 0))
  elseif sequence == record.sequence - 1 then
    take_previous(record, component, refunded - (back and back.previous_r or 0))
  end
end

-- What is new in a demand, out of the current cell, then out of the previous one; the rest was never charged.
local function refund(record, component, at)
  local sequence, demanded, settled = demands[at], demands[at + 1], demands[at + 2]
  local back, dealt_with = component.back, nil
  if sequence == record.sequence then
    dealt_with = max(back and back.demanded or 0, settled)
    if max(dealt_with, demanded) > 0 then
      back_of(component).demanded = max(dealt_with, demanded)
    end
  elseif sequence == record.sequence - 1 then
    dealt_with = max(back and back.previous_demanded or 0, settled)
    if max(dealt_with, demanded) > 0 then
      back_of(component).previous_demanded = max(dealt_with, demanded)
    end
  else
    return
  end
  local asked = max(0, demanded - dealt_with)
  take_previous(record, component, asked - take_current(record, component, asked))
end

refund_window = function(index, record, component)
  local place = demands_at[index]
  if not place then
    return
  end
  local last = place + 1 + 4 * (demands[place] - 1)
  for at = place + 1, last, 4 do
    bring_back(record, component, at)
  end
  for at = place + 1, last, 4 do
    refund(record, component, at)
  end
end

window_refunds = function(index, record, component)
  local back, refunds = component.back, record.refunds
  told_refunds[index] = {
    back and back.demanded or 0, back and back.r or 0, refunds and refunds.r or 0, refunds and refunds.fr or 0,
    back and back.previous_demanded or 0, back and back.previous_r or 0, refunds and refunds.previous_r or 0,
    refunds and refunds.previous_fr or 0,
  }
end

-- How far the arrival time that the run was told must be put back: by what was given back since. Nothing if it can't be
-- said whether that was before or after a refund.
bucket_refunds = function(index, record)
  local place = demands_at[index]
  if not place then
    if record.refunded > 0 then
      return
    end
    return 0
  end
  local since = record.refunded - demands[place + 4]
  record.refunded = max(record.refunded, demands[place + 4])
  return max(0, since)
end

refund_bucket = function(index, record, component, most, before)
  local place = demands_at[index]
  if not place then
    return
  end
  local demanded = demands[place + 2]
  local dealt_with = max(component.demanded, demands[place + 3])
  component.demanded = max(dealt_with, demanded)
  local asked = min(max(0, demanded - dealt_with), most + record.rate + 1)
  if asked > 0 and (record.ms > now or (record.ms == now and record.rest > 0)) then
    local ms, rest = before(record, record.ms, record.rest, asked)
    if ms < now then
      ms, rest = now, 0
    end
    record.ms, record.rest, record.refunded = ms, rest, record.refunded + asked
  end
end

-- When all is answered: what each report here is told.
answer_refunds = function()
  local at = 1
  while demands[at] do
    add(unpack(told_refunds[demands[at]] or NO_REFUNDS))
    at = at + 2 + 4 * demands[at + 1]
  end
end

end
