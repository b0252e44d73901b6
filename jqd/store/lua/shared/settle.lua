-- Writes what becomes of the queues after a claim has chosen (choose.lua): their jobs are taken, what they spend is
-- counted, their rows in the indexes change, and queues that may give no more are parked. A queue ends either parked or
-- with right rows.

-- Returns the first job of each priority that was read and not taken; flat: priority, id.
local function heads_of(walk, taken)
  local heads, last = {}, nil
  for at = 1, #walk.rows, 2 do
    local id, priority = walk.rows[at], walk.rows[at + 1]
    if priority ~= last and not taken[id] then
      heads[#heads + 1], heads[#heads + 2], last = priority, id, priority
    end
  end
  return heads
end

-- Returns whether all was read that the queue has, up to the worst priority.
local function is_read(walk)
  return #walk.tied_jobs == 0 and #walk.rows < 2 * walk.asked and walk.priority_max >= Queues.WORST
end

-- Returns the first job left of each priority, flat, or of the first `most` priorities. It is not asked again if all
-- was read.
local function heads_left(walk, taken, most)
  if is_read(walk) and walk.priority_min <= Queues.BEST then
    return heads_of(walk, taken)
  end
  return Queues.heads(walk.queue, most)
end

-- Changes the index rows of priorities whose first job was taken, and the row by which the queue was found, if wrong.
local function mend_heads(walk, taken)
  local rows, is_right, last, head = walk.rows, walk.most < 1, nil, nil
  local none = not is_read(walk) and nil  -- false: none is left; nil: not known
  for at = 1, #rows, 2 do
    local id, priority = rows[at], rows[at + 1]
    if priority ~= last then
      last, head = priority, taken[id] and id
      is_right = is_right or id == walk.found_id and tonumber(priority) == walk.found_priority
      if head then
        Index.touch(walk.queue, priority, head, none)
      end
    elseif head and not taken[id] then
      Index.touch(walk.queue, priority, head, id)
      head = nil
    end
  end
  if walk.found_id and not is_right then
    Index.touch(walk.queue, walk.found_priority, walk.found_id)
  end
end

-- Parks a queue that may give no more, and drops its rows from the indexes. Returns whether it did, and how many
-- priorities it looked up, `asked` at most. The states count jobs that were accepted and then not given, so each bucket
-- is read once more; `fresh`: those that were.
local function park(walk, taken, fresh, now_us, asked)
  local is_used_up = false
  for place = 1, #walk.allowed, 2 do
    is_used_up = is_used_up or not Limits.has(walk.allowed[place], walk.allowed[place + 1])
  end
  if not is_used_up then
    return false, 0
  end
  for _, item in ipairs(Limits.items(walk.queue)) do
    if not fresh[item.bucket] then
      call.bucket_states[item.bucket], fresh[item.bucket] = nil, true
    end
  end
  local most, bucket = Limits.allows(walk.queue, now_us)
  if most >= 1 then
    return false, 0
  end
  if walk.found_id then
    Index.note_gone(walk.found_priority, walk.found_id, walk.queue)
  end
  for at = 1, #walk.passed_over, 2 do
    Index.note_gone(walk.passed_over[at], walk.passed_over[at + 1], walk.queue)
  end
  if not Queues.parked_at(walk.queue) then
    local heads = heads_of(walk, Choose.NOWHERE)
    for at = 1, #heads, 2 do
      Index.note_gone(heads[at], heads[at + 1], walk.queue)
    end
    local left = heads_left(walk, taken, asked)
    Parked.park(walk.queue, bucket, left, now_us)
    return true, #left / 2
  end
  return true, 0
end

local function given_of(chosen, taken)
  for _, id in ipairs(chosen) do
    if not taken[id] then  -- there were too many bytes
      local ids = {}
      for _, given_id in ipairs(chosen) do
        ids[#ids + 1] = taken[given_id] and given_id
      end
      return ids
    end
  end
  return chosen
end

-- Takes loose jobs. `are_all`: all that were chosen are given.
local function take_loose(queue, loose, taken, are_all)
  local rows = are_all and loose.rows or {}
  for _, row in ipairs(are_all and Choose.NOWHERE or loose.rows) do
    if taken[row:match('^[^:]*')] then
      rows[#rows + 1] = row
    end
  end
  Index.note_taken(queue, loose.priorities, rows)
  for _, group in ipairs(loose.groups) do
    local ids = group.count == 0 and Choose.NOWHERE or are_all and group or given_of(group, taken)
    if #ids > 0 and group.allowed ~= Choose.NOWHERE then
      Spend.spend(group.queue, group.allowed, ids)
    end
  end
end

-- Moves loose jobs that may not start into their queue. It is then parked, or gets rows.
local function tie(walk)
  local rows, last = {}, nil
  for at, job in ipairs(walk.tied_jobs) do
    rows[2 * at - 1], rows[2 * at] = job.priority, job.id
    Index.note_taken(walk.queue, {[job.priority] = true}, {job.row})
    if job.priority ~= last then
      last = job.priority
      Index.touch(walk.queue, last, Queues.head_of(walk.queue, last))
    end
  end
  redis.call('ZADD', ready_key(walk.queue), unpack(rows))
  Index.count_keyed(walk.queue, #walk.tied_jobs)
end

-- Settles the queues of a claim. `taken`: id → true of jobs that were given; `are_all`: that is all that were chosen.
-- Parks queues that gave jobs, or could give none, if a constraint is used up.
function Settle.settle_queues(order, opened, taken, are_all, fence, now_us)
  local first = order[1] or order.loose.groups[1] and order.loose.groups[1].queue
  if not first then
    return
  end
  for _, queue in ipairs(order) do
    local walk = opened[queue]
    local ids = given_of(walk.taken, taken)
    if #ids > 0 and not Queues.is_keyed(queue) then
      Pages.take(queue, ids, walk.where, heads_of(walk, Choose.NOWHERE))
    elseif #ids > 0 then
      Pages.remove(queue, ids, walk.where)
      if not walk.is_old then
        Spend.spend(queue, walk.allowed, ids)
      end
    end
  end
  take_loose(first, order.loose, taken, are_all)
  Spend.write_spent(fence, now_us)
  local fresh, asked = {}, Choose.ASKED
  for _, queue in ipairs(order) do
    local is_parked, rows = false, 0
    if #opened[queue].tied_jobs > 0 then
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
  Index.mend(Queues.type_of(first))
  Index.write()
end
