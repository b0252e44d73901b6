-- What becomes of the queues of jobs that were chosen.
-- The first job of each priority that was read, but for those that were taken; flat: priority, id.
local function heads_of(one, taken)
  local heads, last = {}, nil
  for at = 1, #one.rows, 2 do
    local id, priority = one.rows[at], one.rows[at + 1]
    if priority ~= last and not taken[id] then
      heads[#heads + 1], heads[#heads + 2], last = priority, id, priority
    end
  end
  return heads
end

-- Whether all was read that the queue has waiting up to any priority.
local function is_read(one) return #one.left == 0 and #one.rows < 2 * one.asked and one.priority_max >= Queues.WORST end

-- The first job that a queue has left of each priority, flat, or of the first `most` of them. What was read of it says
-- so, if that was all.
local function heads_left(one, taken, most)
  if is_read(one) and one.priority_min <= Queues.BEST then
    return heads_of(one, taken)
  end
  return Queues.heads(one.queue, most)
end

-- Exchanges the rows of those of its jobs that were taken, and the one by which it was found, if that was wrong.
local function mend_heads(one, taken)
  local rows, is_right, last, head = one.rows, one.most < 1, nil, nil
  local none = not is_read(one) and nil  -- false: none is left; nil: nobody knows
  for at = 1, #rows, 2 do
    local id, priority = rows[at], rows[at + 1]
    if priority ~= last then
      last, head = priority, taken[id] and id
      is_right = is_right or id == one.id and tonumber(priority) == one.priority
      if head then
        Heads.touch(one.queue, priority, head, none)
      end
    elseif head and not taken[id] then
      Heads.touch(one.queue, priority, head, id)
      head = nil
    end
  end
  if one.id and not is_right then
    Heads.touch(one.queue, one.priority, one.id)
  end
end

-- Takes a queue that may give nothing more out of the indexes, with what was found of it there. Whether it is one. What
-- was accepted is off the states already, and not all of it was given: `fresh` are buckets that were asked anew. Also
-- how many of its priorities went, of `asked` at most.
local function park(one, taken, fresh, now_us, asked)
  local is_used_up = false
  for place = 1, #one.allowed, 2 do
    is_used_up = is_used_up or not Limits.has(one.allowed[place], one.allowed[place + 1])
  end
  if not is_used_up then
    return false, 0
  end
  for _, item in ipairs(Limits.items(one.queue)) do
    if not fresh[item.bucket] then
      call.bucket_states[item.bucket], fresh[item.bucket] = nil, true
    end
  end
  local most, bucket = Limits.allows(one.queue, now_us)
  if most >= 1 then
    return false, 0
  end
  if one.id then
    Heads.note_gone(one.priority, one.id, one.queue)
  end
  for at = 1, #one.met, 2 do
    Heads.note_gone(one.met[at], one.met[at + 1], one.queue)
  end
  if not Queues.parked_at(one.queue) then
    local heads = heads_of(one, Choose.NOWHERE)
    for at = 1, #heads, 2 do
      Heads.note_gone(heads[at], heads[at + 1], one.queue)
    end
    local left = heads_left(one, taken, asked)
    Parked.park(one.queue, bucket, left, now_us)
    return true, #left / 2
  end
  return true, 0
end

local function given_of(all, taken)
  for _, id in ipairs(all) do
    if not taken[id] then  -- bytes did not suffice
      local ids = {}
      for _, each in ipairs(all) do
        ids[#ids + 1] = taken[each] and each
      end
      return ids
    end
  end
  return all
end

-- `are_all`: of those that were chosen none was left out.
local function take_loose(queue, loose, taken, are_all)
  local rows = are_all and loose.rows or {}
  for _, row in ipairs(are_all and Choose.NOWHERE or loose.rows) do
    if taken[row:match('^[^:]*')] then
      rows[#rows + 1] = row
    end
  end
  Heads.note_taken(queue, loose.priorities, rows)
  for _, group in ipairs(loose.groups) do
    local ids = group.count == 0 and Choose.NOWHERE or are_all and group or given_of(group, taken)
    if #ids > 0 and group.allowed ~= Choose.NOWHERE then
      Spend.spend(group.queue, group.allowed, ids)
    end
  end
end

-- Those that were loose and may not start go to their queue, which then may be parked, or gets rows.
local function tie(one)
  local rows, last = {}, nil
  for at, job in ipairs(one.left) do
    rows[2 * at - 1], rows[2 * at] = job.priority, job.id
    Heads.note_taken(one.queue, {[job.priority] = true}, {job.row})
    if job.priority ~= last then
      last = job.priority
      Heads.touch(one.queue, last, Queues.head_of(one.queue, last))
    end
  end
  redis.call('ZADD', ready_key(one.queue), unpack(rows))
  Heads.count_keyed(one.queue, #one.left)
end

-- Jobs of these queues were taken: counts them, and parks the queues that may not go on. `taken`: id → true of those
-- that were given; `are_all`: of those that were chosen. What gave some, or nothing because of its limits, may have to
-- wait.
function Settle.settle_queues(order, opened, taken, are_all, fence, now_us)
  local first = order[1] or order.loose.groups[1] and order.loose.groups[1].queue
  if not first then
    return
  end
  for _, queue in ipairs(order) do
    local one = opened[queue]
    local ids = given_of(one.taken, taken)
    if #ids > 0 and not Queues.is_keyed(queue) then
      Pages.take(queue, ids, one.where, heads_of(one, Choose.NOWHERE))
    elseif #ids > 0 then
      Pages.remove(queue, ids, one.where)
      if not one.is_old then
        Spend.spend(queue, one.allowed, ids)
      end
    end
  end
  take_loose(first, order.loose, taken, are_all)
  Spend.write_spent(fence, now_us)
  local fresh, asked = {}, Choose.ASKED
  for _, queue in ipairs(order) do
    local is_parked, rows = false, 0
    if #opened[queue].left > 0 then
      tie(opened[queue])
    end
    if Queues.is_keyed(queue) then
      is_parked, rows = park(opened[queue], taken, fresh, now_us, math.max(1, asked))
      asked = asked - rows
      if not is_parked then
        mend_heads(opened[queue], taken)
      end
    end
  end
  Heads.mend(Queues.type_of(first))
  Heads.write()
end
