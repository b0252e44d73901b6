-- What a partition has of the slots of a concurrency, written (docs/adr/0048). Needs keys, now, heads, members, permits.
-- Gives slots.learn(bucket, era, granted, made, most, now_us, keep): what its home said, of the row that was `made` then. Only where no job may be in a
-- hand that is not known here, or more than these would be let through. Without `keep` nothing is noted of a bucket that has nothing here. Returns era,
-- granted, returned, made.
-- slots.give_back(bucket): what is free here goes home; slots.wanted(states, now_us): flat, of each bucket of which a claim lacks something:
-- kind, bucket, home, how many, and of a rate: what the least job costs, the time, its window, an empty field; of slots: era, granted, returned, made.
local slots = {AT_ONCE = 200, FIELDS = 8}

function slots.write(bucket, row)
  permits.rows[bucket] = row
  local fields = {row.era, row.granted, row.returned, row.most, row.wanted_us, row.made}
  for at, value in ipairs(fields) do
    fields[at] = string.format('%.0f', value)
  end
  redis.call('HSET', K.permits, 'p' .. bucket, table.concat(fields, ' '))
end

function slots.learn(bucket, era, granted, made, most, now_us, keep)
  local row = permits.row(bucket)
  if not row or row.era < era then
    -- Nothing is known of this era: what is in hands here was granted, and no more than that is ours. What was told of earlier rows may be on its way
    -- yet, and how old that is nobody knows: it is void.
    local busy = redis.call('ZCARD', K.busy .. bucket)
    if not (row or keep or busy > 0) then
      return era, 0, 0, next_fence(now_us)
    end
    keyed.begin()  -- else nobody would look when it is not needed any more
    row = {era = era, granted = busy, returned = 0, most = most, wanted_us = 0, made = next_fence(now_us)}
    redis.call('ZADD', K.due, 'LT', math.floor(now_us / 1000) + permits.KEPT_MS, bucket)
  elseif row.era == era and row.made == made then
    row.granted = math.max(row.granted, granted)
    row.most = most > 0 and most or row.most
  end
  slots.write(bucket, row)
  return row.era, row.granted, row.returned, row.made
end

function slots.give_back(bucket)
  local row = permits.row(bucket)
  local free = row and row.granted - row.returned - redis.call('ZCARD', K.busy .. bucket) or 0
  if free > 0 then
    row.returned = row.returned + free
    slots.write(bucket, row)
  end
end

function slots.wanted(states, now_us)
  local buckets, found = {}, {}
  for bucket in pairs(states) do
    buckets[#buckets + 1] = bucket
  end
  table.sort(buckets)
  local function note(...)
    if #found < slots.FIELDS * slots.AT_ONCE then
      for _, value in ipairs({...}) do
        found[#found + 1] = value
      end
    end
  end
  for _, bucket in ipairs(buckets) do
    local state = states[bucket]
    local lacks = state.asks_slots and state.asks_slots - state.slots - state.free or 0
    if lacks > 0 then
      if state.free == 0 then
        slots.give_back(bucket)  -- it may be kept for others, or be of another limit
      end
      local row = permits.row(bucket) or {era = 0, granted = 0, returned = 0, made = 0}
      note('slots', bucket, permits.home(bucket), lacks, digits(row.era), digits(row.granted), digits(row.returned), digits(row.made))
    end
  end
  for _, bucket in ipairs(#found == 0 and buckets or {}) do  -- rates last: what is not used of them is lost
    local state = states[bucket]
    local lacks = state.asks_rate and state.asks_rate - state.rate or 0
    if lacks > 0 then
      note('rate', bucket, permits.home(bucket), lacks, state.least, digits(now_us), digits(state.window_us), '')
    end
  end
  return found
end
