-- Which jobs of a jobtype may start now, of all its queues: smallest priority first, then oldest. Needs keys, order, heads, pages, limits.
-- Gives choose(jobtype, limit, passed, priority_min, priority_max, version, refuse, now_us): `passed` more are looked at, for `refuse(id)` is true of
-- some. Returns ids; their queues, in order; queue → what `take` and `park` want; whether there may be more that was not looked at.
-- `settle_queues(queues, opened, fence, now_us)`: they were taken: counts them, and parks what may not go on.
local CHOICE = {visits = 100, rows = 64}  -- queues that give nothing, looked at in one claim; rows of the index read at once

-- The best jobs of one queue, with their priorities, in order.
local function open_queue(queue, priority, id, most, passed, priority_min, priority_max)
  local ids, where, heads = first_of(queue, most + passed, priority_min, priority_max)
  local one = {queue = queue, priority = priority, id = id, where = where, heads = heads, taken = {}, rows = {}}
  local at, now = 1, nil
  for place, its_id in ipairs(ids) do
    if heads[at + 1] == its_id then
      now, at = tonumber(heads[at]), at + 2
    end
    one.rows[place] = {id = its_id, priority = now, from = one}
  end
  return one
end

-- Puts rows that are in order into others that are, from `first` on.
local function merge(pool, first, rows)
  for _, row in ipairs(rows) do
    local low, high = first, #pool + 1
    while low < high do
      local middle = math.floor((low + high) / 2)
      if precedes(pool[middle].priority, pool[middle].id, row.priority, row.id) then
        low = middle + 1
      else
        high = middle
      end
    end
    table.insert(pool, low, row)
    first = low + 1
  end
end

local function choose(jobtype, limit, passed, priority_min, priority_max, version, refuse, now_us)
  local index, rows, at, offset, pool, first = K.queues .. jobtype, {}, 1, 0, {}, 1
  local ids, order, opened, empty = {}, {}, {}, 0
  local plain_id, plain_priority = first_between(jobtype, priority_min, priority_max)
  local function next_row()
    if at > #rows and offset >= 0 then
      rows = redis.call('ZRANGE', index, priority_min, priority_max, 'BYSCORE', 'LIMIT', offset, CHOICE.rows, 'WITHSCORES')
      at, offset = 1, #rows == 2 * CHOICE.rows and offset + CHOICE.rows or -1
    end
    local id, queue = (rows[at] or ''):match('^([^:]*):(.*)$')
    if plain_id and not (id and precedes(tonumber(rows[at + 1]), id, tonumber(plain_priority), plain_id)) then
      return tonumber(plain_priority), plain_id, jobtype
    elseif id then
      return tonumber(rows[at + 1]), id, queue
    end
    return nil
  end
  local function accept(row)
    local one = row.from
    if refuse(row.id) or one.is_full then
      return
    end
    if not one.is_old then
      for _, item in ipairs(limits.items(one.queue)) do
        one.is_full = one.is_full or not limits.has(limits.state(item, now_us), item.cost)
      end
      if one.is_full then
        return
      end
      for _, item in ipairs(limits.items(one.queue)) do
        limits.use(limits.state(item, now_us), item.cost)
      end
    end
    ids[#ids + 1], one.taken[#one.taken + 1] = row.id, row.id
  end
  while #ids < limit and empty < CHOICE.visits do
    local priority, id, queue = next_row()
    while #ids < limit and pool[first] and not (priority and precedes(priority, id, pool[first].priority, pool[first].id)) do
      accept(pool[first])
      first = first + 1
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
      opened[queue] = most >= 1 and open_queue(queue, priority, id, most, passed, priority_min, priority_max) or {queue = queue, priority = priority, id = id, taken = {}, rows = {}}
      opened[queue].is_old, order[#order + 1] = is_old, queue
      if #opened[queue].rows == 0 then
        empty = empty + 1
      end
      merge(pool, first, opened[queue].rows)
    end
  end
  return ids, order, opened, #ids < limit
end

-- `taken`: id → true of those that were given. What gave some, or nothing because of its limits, may have to wait.
local function settle_queues(order, opened, taken, fence, now_us)
  for _, queue in ipairs(order) do
    local one, ids = opened[queue], {}
    for _, id in ipairs(one.taken) do
      if taken[id] then
        ids[#ids + 1] = id
      end
    end
    if #ids > 0 then
      take(queue, ids, one.where, one.heads)
      if not one.is_old then
        limits.spend(queue, ids, fence, now_us)
      end
    end
  end
  limits.states = {}
  for _, queue in ipairs(order) do
    local one = opened[queue]
    if keyed.is(queue) and not one.is_old then
      local most, bucket = limits.allows(queue, now_us)
      if most < 1 then
        limits.park(queue, bucket, one.priority, one.id, now_us)
      end
    end
  end
end
