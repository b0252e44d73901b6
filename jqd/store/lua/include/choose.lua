-- Which jobs of a jobtype may start now, of all its queues: smallest priority first, then oldest. Needs keys, order, heads, pages, permits, limits.
-- Gives choose(jobtype, limit, passed, priority_min, priority_max, version, refuse, now_us): `passed` more are looked at, for `refuse(id)` is true of
-- some. Returns ids; their queues, in order; queue → what `take` and `park` want; whether there may be more that was not looked at.
-- `settle_queues(queues, opened, taken, fence, now_us)`: they were taken: counts them, and parks what may not go on.
-- Queues that give nothing, looked at in one claim; rows of the index, and jobs of a queue, read at once; the largest of all priorities.
local CHOICE = {visits = 100, rows = 64, first = 8, worst = 2147483647, best = -2147483648}

-- The next jobs of one queue, with their priorities, in order: few at first, for other queues may have all the better ones.
local function read_on(one)
  local asked = math.min(one.most, math.max(CHOICE.first, 4 * one.asked))
  local ids, where, heads = first_of(one.queue, asked, one.priority_min, one.priority_max)
  local at, now, seen = 1, nil, #one.rows
  for place, its_id in ipairs(ids) do
    if heads[at + 1] == its_id then
      now, at = tonumber(heads[at]), at + 2
    end
    if place > seen then
      one.rows[place] = {id = its_id, priority = now, from = one}
    end
  end
  one.asked, one.where, one.heads = asked, where, heads
end

-- Puts the next row of a queue among the next ones of the others, the last of which is the first in order.
local function push_next(pool, one)
  one.at = one.at + 1
  if not one.rows[one.at] and #one.rows == one.asked and one.asked < one.most then
    read_on(one)
  end
  local row = one.rows[one.at]
  if not row then
    return
  end
  local low, high = 1, #pool + 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if precedes(row.priority, row.id, pool[middle].priority, pool[middle].id) then
      low = middle + 1
    else
      high = middle
    end
  end
  table.insert(pool, low, row)
end

local function choose(jobtype, limit, passed, priority_min, priority_max, version, refuse, now_us)
  local index, rows, at, offset, pool = K.queues .. jobtype, {}, 1, 0, {}
  local ids, order, opened, empty = {}, {}, {}, 0
  local plain_id, plain_priority = first_between(jobtype, priority_min, priority_max)
  local function next_row()
    if at > #rows and offset >= 0 then
      rows = redis.call('ZRANGE', index, priority_min, priority_max, 'BYSCORE', 'LIMIT', offset, CHOICE.rows, 'WITHSCORES')
      at, offset = 1, #rows == 2 * CHOICE.rows and offset + CHOICE.rows or -1
    end
    local row = rows[at]
    local mark = row and row:find(':', 1, true)
    local id, queue = mark and row:sub(1, mark - 1), mark and row:sub(mark + 1)
    if plain_id and not (id and precedes(tonumber(rows[at + 1]), id, tonumber(plain_priority), plain_id)) then
      return tonumber(plain_priority), plain_id, jobtype
    elseif id then
      return tonumber(rows[at + 1]), id, queue
    end
    return nil
  end
  -- Whether its queue may have more.
  local function accept(row)
    local one = row.from
    if refuse(row.id) then
      return true
    end
    if not one.is_old then
      for _, item in ipairs(limits.items(one.queue)) do
        if not limits.has(limits.state(item, now_us), item.cost) then
          return false
        end
      end
      for _, item in ipairs(limits.items(one.queue)) do
        limits.use(limits.state(item, now_us), item.cost)
      end
    end
    ids[#ids + 1], one.taken[#one.taken + 1] = row.id, row.id
    return true
  end
  while #ids < limit and empty < CHOICE.visits do
    local priority, id, queue = next_row()
    while #ids < limit and #pool > 0 and not (priority and precedes(priority, id, pool[#pool].priority, pool[#pool].id)) do
      local row = table.remove(pool)
      if accept(row) then
        push_next(pool, row.from)
      end
    end
    if not priority or #ids == limit then
      return ids, order, opened, false
    elseif queue == jobtype and id == plain_id then
      plain_id = nil
    else
      at = at + 2
    end
    if not opened[queue] then
      local is_old, most = limits.version_of(queue) ~= version, limit - #ids
      if not is_old then
        most = math.min(most, (limits.allows(queue, now_us)))
      end
      expect_ready(queue)
      local one = {queue = queue, priority = priority, id = id, priority_min = priority_min, priority_max = priority_max, is_old = is_old,
        most = most >= 1 and most + passed or 0, asked = 0, at = 0, taken = {}, rows = {}}
      opened[queue], order[#order + 1] = one, queue
      push_next(pool, one)
      if #one.rows == 0 then
        empty = empty + 1
      end
    end
  end
  return ids, order, opened, #ids < limit
end

-- Whether all was read that the queue has waiting up to any priority.
local function is_read(one) return #one.rows < one.asked and one.priority_max >= CHOICE.worst end

-- The first job that a queue has left of each priority, flat. What was read of it says so, if that was all.
local function heads_left(one, taken)
  local heads, last, from = {}, nil, '-inf'
  if is_read(one) and one.priority_min <= CHOICE.best then
    for _, row in ipairs(one.rows) do
      if row.priority ~= last and not taken[row.id] then
        heads[#heads + 1], heads[#heads + 2], last = row.priority, row.id, row.priority
      end
    end
    return heads
  end
  while #heads < 2 * limits.PRIORITIES do
    local id, priority = first_between(one.queue, from, '+inf')
    if not id then
      break
    end
    heads[#heads + 1], heads[#heads + 2], from = priority, id, '(' .. priority
  end
  return heads
end

-- What comes next after a job that was taken: of its priority, or of the next one, which may have no row: a queue is let go with those of its
-- first priorities.
local function next_of(one, taken, priority)
  for _, row in ipairs(one.rows) do
    if row.priority >= priority and not taken[row.id] then
      return row.id, row.priority
    end
  end
  if is_read(one) then
    return nil
  end
  return first_between(one.queue, priority, '+inf')
end

-- Exchanges the rows of those of its jobs that were taken, and the one by which it was found, if that was wrong.
local function mend_heads(one, taken)
  local heads, is_right = one.heads or {}, one.most < 1
  for first = 1, #heads, 2 do
    local priority, id = tonumber(heads[first]), heads[first + 1]
    is_right = is_right or id == one.id and priority == one.priority
    if taken[id] then
      keyed.gone(priority, id, one.queue)
      local next_id, its = next_of(one, taken, priority)
      if next_id then
        keyed.row(its, next_id, one.queue)
      end
    end
  end
  if not is_right and head_of(one.queue, one.priority) ~= one.id then
    keyed.gone(one.priority, one.id, one.queue)
  end
end

-- Takes a queue that may give nothing more out of the indexes, with what was found of it there. Whether it is one. What was accepted is off the
-- states already, and not all of it was given: `fresh` are buckets that were asked anew.
local function park(one, taken, fresh, now_us)
  if one.is_old or limits.allows(one.queue, now_us) >= 1 then
    return false
  end
  for _, item in ipairs(limits.items(one.queue)) do
    if not fresh[item.bucket] then
      limits.states[item.bucket], fresh[item.bucket] = nil, true
    end
  end
  local most, bucket = limits.allows(one.queue, now_us)
  if most >= 1 or permits.may_ask(limits.states[bucket]) then
    return false
  end
  keyed.gone(one.priority, one.id, one.queue)
  if redis.call('HEXISTS', K.parked, one.queue) == 0 then
    for first = 1, #(one.heads or {}), 2 do
      keyed.gone(one.heads[first], one.heads[first + 1], one.queue)
    end
    limits.park(one.queue, bucket, heads_left(one, taken), now_us)
  end
  return true
end

-- `taken`: id → true of those that were given. What gave some, or nothing because of its limits, may have to wait.
local function settle_queues(order, opened, taken, fence, now_us)
  keyed.gather()
  for _, queue in ipairs(order) do
    local one, ids = opened[queue], {}
    for _, id in ipairs(one.taken) do
      if taken[id] then
        ids[#ids + 1] = id
      end
    end
    if #ids > 0 and not keyed.is(queue) then
      take(queue, ids, one.where, one.heads)
    elseif #ids > 0 then
      remove(queue, ids, one.where)
      if not one.is_old then
        limits.spend(queue, ids)
      end
    end
  end
  limits.write_spent(fence, now_us)
  local fresh = {}
  for _, queue in ipairs(order) do
    if keyed.is(queue) and not park(opened[queue], taken, fresh, now_us) then
      mend_heads(opened[queue], taken)
    end
  end
  keyed.write()
end
