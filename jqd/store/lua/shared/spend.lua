-- What claims spend of limits, and how it is written.
-- Gives spend(queue, allowed, ids), then write_spent(fence, now_us).
starts.spending, starts.spent_slots, starts.spent_ids = empty, empty, empty

-- What several queues spend of one bucket is one entry.
function Spend.spend(queue, allowed, ids)
  local is_busy, count = false, #ids
  for place = 1, #allowed, 2 do
    local state, cost = allowed[place], allowed[place + 1]
    local rule = state.rule
    if rule and rule.limit > 0 and cost > 0 then
      if state.spent == 0 then
        call.spending[#call.spending + 1] = state
      end
      state.spent = state.spent + cost * count
    end
    if rule and rule.concurrency > 0 then
      local groups = call.spent_slots[state.bucket] or {}
      call.spent_slots[state.bucket], groups[#groups + 1] = groups, ids
      is_busy = true
    end
  end
  if is_busy then
    local at = #call.spent_ids
    for place = 1, count do
      call.spent_ids[at + 1], call.spent_ids[at + 2], at = ids[place], queue, at + 2
    end
  end
end

-- What stands behind the last entry, until when it counts (ms), and whether the last one is in it.
local function next_entry(rule, count, last, now_us)
  local begin_us, due_us, joins = now_us, 0, false
  local end_us = math.max(now_us, last and last.end_us or 0)
  local total = count + (last and last.total or 0)
  if rule.burst > 0 then
    due_us = math.floor(math.max(last and last.due_us or 0, now_us) + count * rule.window_us / rule.limit)
  end
  if last and rule.limit + rule.burst > Limits.EXACT and now_us - last.begin_us < rule.window_us / Limits.EXACT then
    count, begin_us, joins = count + last.count, last.begin_us, true
  end
  local row = string.format('%d %d %d %d %d', begin_us, end_us, count, total, due_us)
  return row, math.ceil((end_us + rule.window_us) / 1000), joins
end

-- Returns when it is out of the window (ms).
local function write_rate(key, rule, count, last, now_us)
  local row, due_ms, joins = next_entry(rule, count, last, now_us)
  if joins then
    redis.call('LTRIM', key, 0, -2)
  end
  redis.call('RPUSH', key, row)
  return due_ms
end

function Spend.write_spent(fence, now_us)
  local dues, fresh, alike = {}, {}, {}
  for place = 1, #call.spending do
    local state = call.spending[place]
    local bucket, rule, count, last = state.bucket, state.rule, state.spent, state.last
    if last then
      dues[#dues + 1], dues[#dues + 2] = write_rate(state.key, rule, count, last, now_us), bucket
    else  -- of one rule and count they are all alike, and spelled once
      local firsts = alike[rule] or {}
      local first = firsts[count]
      if not first then
        local row, due_ms = next_entry(rule, count, nil, now_us)
        fresh[due_ms] = fresh[due_ms] or {}
        first = {row = row, buckets = fresh[due_ms]}
        alike[rule], firsts[count] = firsts, first
      end
      redis.call('RPUSH', state.key, first.row)
      local buckets = first.buckets
      buckets[#buckets + 1] = bucket
    end
  end
  -- Those of which nothing was spent have no row, and get one together.
  for due_ms, its in pairs(fresh) do
    for first = 1, #its, Limits.MANY do
      dues[#dues + 1], dues[#dues + 2] = due_ms, Limits.row_of(its, first, math.min(#its, first + Limits.MANY - 1))
    end
  end
  Heads.call_with(dues, 'ZADD', K.due, 'LT')
  local score = digits(fence)
  for bucket, groups in pairs(call.spent_slots) do
    local rows, filled = {}, 0
    for _, ids in ipairs(groups) do
      for place = 1, #ids do
        rows[filled + 1], rows[filled + 2], filled = score, ids[place], filled + 2
      end
    end
    Heads.call_with(rows, 'ZADD', K.busy .. bucket)
  end
  Heads.call_with(call.spent_ids, 'HSET', K.limited)
  call.spending, call.spent_slots, call.spent_ids = {}, {}, {}
end
