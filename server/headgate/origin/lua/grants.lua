-- Grants: how much each run may admit of one limit key before it is acknowledged (grants.py).

--@check local function check_sums(key, record)
--@check   local held = { [record.generation] = 0, [record.generation - 1] = 0 }
--@check   local fields = call('HGETALL', key)
--@check   for i = 1, #fields, 2 do
--@check     local kind, values = string.sub(fields[i], 1, 1), { parts(fields[i + 1]) }
--@check     local at = (kind == 'c' and 4) or (kind == 'd' and 2) or 0
--@check     local generation = values[at + 1]
--@check     if at > 0 and held[generation] then held[generation] = held[generation] + values[at] end
--@check   end
--@check   assert(held[record.generation] == record.sum, 'grants: the sum is not what the runs hold')
--@check   assert(held[record.generation - 1] == record.previous_sum, 'grants: the previous sum is wrong')
--@check end

-- Offer half of what others leave of `P`, rounded up; count the larger of held and offered.
-- NO_GRANT for a call that was overtaken by a later one.
local function renew(record, component, number, held, precision, leaving)
  if number <= component.number then
    return NO_GRANT
  end
  component.number = number
  if generation_now > record.generation then
    record.previous_sum = generation_now == record.generation + 1 and record.sum or 0
    record.sum = 0
    record.generation = generation_now
  end
  if component.generation == record.generation then
    record.sum = record.sum - component.held
  elseif component.generation == record.generation - 1 then
    record.previous_sum = record.previous_sum - component.held
  end
  if leaving == 1 then
    component.held = 0
    return 0
  end
  local others = record.sum + record.previous_sum
  local offered = others < precision and ceil((precision - others) / 2) or 0
  --@check assert(offered == 0 or others + offered <= precision, 'grants: the sum exceeds P')
  local counted = held > offered and held or offered
  component.held, component.generation = counted, record.generation
  record.sum = record.sum + counted
  return offered
end
