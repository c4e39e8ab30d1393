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
  local generation, sum, previous_sum = record.generation, record.sum, record.previous_sum
  if generation_now > generation then
    previous_sum = generation_now == generation + 1 and sum or 0
    sum, generation = 0, generation_now
  end
  if component.generation == generation then
    sum = sum - component.held
  elseif component.generation == generation - 1 then
    previous_sum = previous_sum - component.held
  end
  local offered, counted = 0, 0
  if not leaving then
    local others = sum + previous_sum
    if others < precision then
      offered = ceil((precision - others) / 2)
    end
    --@check assert(offered == 0 or others + offered <= precision, 'grants: the sum exceeds P')
    counted = held > offered and held or offered
    component.generation = generation
  end
  component.held = counted
  record.generation, record.sum, record.previous_sum = generation, sum + counted, previous_sum
  return offered
end
