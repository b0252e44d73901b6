-- What a claim spends of limits: noted for each queue, then written together, so that a bucket costs one write.
starts.spending, starts.spent_slots, starts.spent_ids, starts.gone = empty, empty, empty, empty

local function claimed(ids)
  local found = {}
  for _, id in ipairs(ids) do
    found[#found + 1] = not call.gone[id] and id or nil
  end
  return found
end

-- Notes what the jobs that start take of their rates. Those in call.gone take nothing: their rows were lost.
function Spend.spend(queue, allowed, ids)
  ids = call.has_gone and claimed(ids) or ids
  local is_busy, count = false, #ids
  if count == 0 then
    return
  end
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

-- Adds to what was spent: to the latest piece, or a new one.
local function added(spent, rule, count, now_us)
  if now_us - spent.begin_us >= rule.window_us / Limits.PIECES then
    if spent.count > 0 then
      spent.before = string.format('%s %d:%d', spent.before, spent.end_us, spent.count)
    end
    spent.begin_us, spent.count = now_us, 0
  end
  spent.end_us, spent.owed = now_us, spent.owed + count
  spent.count, spent.total = spent.count + count, spent.total + count
  return spent
end

local function write_rates(now_us)
  local rows, alike = {}, {}
  for at, state in ipairs(call.spending) do
    local rule, count, row = state.rule, state.spent, nil
    if state.last then
      row = Limits.row_spent(added(state.last, rule, count, now_us))
    else  -- such rows of one rule and count are equal, and spelled once
      alike[rule] = alike[rule] or {}
      row = alike[rule][count] or Limits.row_spent(added({begin_us = 0, owed = 0, count = 0, total = 0, before = ''},
        rule, count, now_us))
      alike[rule][count] = row
    end
    rows[2 * at - 1], rows[2 * at] = state.bucket, row
  end
  Index.call_with(rows, 'HSET', K.spent)
end

-- Writes all that was noted.
function Spend.write_spent(fence, now_us)
  write_rates(now_us)
  local score = digits(fence)
  for bucket, groups in pairs(call.spent_slots) do
    local rows, filled = {}, 0
    for _, ids in ipairs(groups) do
      for place = 1, #ids do
        rows[filled + 1], rows[filled + 2], filled = score, ids[place], filled + 2
      end
    end
    Index.call_with(rows, 'ZADD', K.busy .. bucket)
  end
  for place = 2, #call.spent_ids, 2 do
    call.spent_ids[place] = About.counts(call.spent_ids[place])
  end
  Index.call_with(call.spent_ids, 'HSET', K.about)
  call.spending, call.spent_slots, call.spent_ids = {}, {}, {}
end
