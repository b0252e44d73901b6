-- Which jobs of a jobtype may start now, of all its queues: smallest priority first, then oldest.
-- VISITS: queues that give nothing, looked at in one claim. ROWS of the index, and FIRST jobs of a queue (at least),
-- are read at once. PASSED: rows of queues whose limits are used up, passed over in one claim; ASKED: priorities of
-- such queues that are asked for, for one call each. What is left of both the next claim meets.
Choose.VISITS, Choose.ROWS, Choose.FIRST, Choose.PASSED, Choose.ASKED, Choose.LOOSE = 100, 64, 8, 500, 500, 100
Choose.NOWHERE = {}  -- of jobs that are in no page

-- The next jobs of one queue, with their priorities, in order: at first its share, for other queues may have all the
-- better ones.
local function read_on(one)
  local queue, least, most = one.queue, one.priority_min, one.priority_max
  one.asked = math.min(one.most, math.max(one.share, 4 * one.asked))
  if Queues.paged_of(queue) > 0 then
    local ids, where, heads = Pages.first_of(queue, one.asked, least, most)
    local rows, at = {}, -1
    for place, id in ipairs(where.all and ids or Choose.NOWHERE) do
      rows[2 * place - 1], rows[2 * place] = id, heads[1]
    end
    for place, id in ipairs(where.all and Choose.NOWHERE or ids) do
      at = heads[at + 3] == id and at + 2 or at
      rows[2 * place - 1], rows[2 * place] = id, heads[at]
    end
    one.rows, one.where = rows, where
    return
  end
  one.rows, one.where = Queues.read_between(ready_key(queue), least, most, 0, one.asked), Choose.NOWHERE
end

-- Goes on to the next job of a queue. Whether there is one.
local function go_on(one)
  local at = one.at + 2
  if not one.rows[at] and #one.rows == 2 * one.asked and one.asked < one.most then
    read_on(one)
  end
  local rows = one.rows
  local id, spelled = rows[at], rows[at + 1]
  one.at, one.next_id = at, id
  if spelled ~= one.spelled then
    one.spelled, one.next_priority = spelled, tonumber(spelled)
  end
  return id ~= nil
end

local function is_ahead(one, other)
  local mine, its = one.next_priority, other.next_priority
  if mine == its and Order.has_no_locale then  -- what is asked most
    return one.next_id < other.next_id
  end
  return Order.precedes(mine, one.next_id, its, other.next_id)
end

-- Queues in the order of their next jobs, at the places from `first` to `last`. One comes where it belongs: behind all
-- others nearly always, or before them, for their jobs came in turns, or together.
local function put(pool, one)
  local first, last = pool.first, pool.last
  if first > last or not is_ahead(one, pool[last]) then
    pool[last + 1], pool.last = one, last + 1
  elseif first > 1 and is_ahead(one, pool[first]) then
    pool[first - 1], pool.first = one, first - 1
  else
    local low, high = first, last
    while low < high do
      local middle = math.floor((low + high) / 2)
      if is_ahead(one, pool[middle]) then
        high = middle
      else
        low = middle + 1
      end
    end
    for at = last, low, -1 do
      pool[at + 1] = pool[at]
    end
    pool[low], pool.last = one, last + 1
  end
end

-- Jobs that are loose. What was read, flat with priorities, its ids and queues, `at` being the place of the next one,
-- and which of them are of parked queues; rows that were accepted, their priorities (keys), and what the queues of
-- those that were read allow. accept(id, queue, row, is_parked) → whether it may start; read_on() → what comes next, or
-- nil. All of this runs for each job of a claim: each call of a function costs as much as ten steps without.
local function loosely(jobtype, priority_min, priority_max, limit, passed, version, now_us)
  local key, offset, groups, all_groups, begun, rows, filled = Queues.loose_key(jobtype), 0, {}, {}, 0, {}, 0
  local loose = {at = 1, read = {}, ids = {}, queues = {}, parked = false, rows = rows, priorities = {},
    groups = all_groups}
  local count, find, sub = math.min(limit + passed, Choose.LOOSE), string.find, string.sub

  -- A group is what was accepted of a queue: a list of ids, with room for one, for most have one.
  local function begin(queue)
    local bucket, shape = Limits.bucket_of(queue)
    local items = shape or Limits.items(queue)
    local allowed = Choose.NOWHERE  -- of one that was found by other matchers: its caller knows what limits it
    if bucket and items.version == version then
      allowed = {Limits.state(bucket, shape.name, shape.cost, now_us), shape.cost or false}
    elseif items.version == version then
      allowed = {}
      for place, item in ipairs(items) do
        allowed[2 * place - 1], allowed[2 * place] = Limits.state(item.bucket, item.name, item.cost, now_us),
          item.cost or false
      end
    end
    local group = {false, queue = queue, allowed = allowed, count = 0}
    groups[queue], begun = group, begun + 1
    all_groups[begun] = group
    return group
  end

  function loose.accept(id, queue, row, is_parked)
    local group = groups[queue] or begin(queue)
    if is_parked or not Limits.use(group.allowed) then
      return false
    end
    local number = group.count + 1
    filled = filled + 1
    rows[filled], group.count, group[number] = row, number, id
    return true
  end

  function loose.read_on()
    while offset do
      local read = Queues.read_between(key, priority_min, priority_max, offset, count)
      offset = #read == 2 * count and offset + count or nil
      if #read > 0 then
        local ids, queues = {}, {}
        Limits.put_off()
        for place = 1, #read / 2 do
          local row = read[2 * place - 1]
          local mark = find(row, ':', 1, true) or #row + 1
          local queue = sub(row, mark + 1)
          ids[place], queues[place] = sub(row, 1, mark - 1), queue
          if not groups[queue] and place <= limit then
            begin(queue)
          end
        end
        Limits.read_rates(now_us)
        loose.at, loose.read, loose.ids, loose.queues = 1, read, ids, queues
        loose.parked = redis.call('EXISTS', K.tied) == 1 and redis.call('HMGET', K.tied, unpack(queues))
        return read
      end
    end
    return nil
  end

  return loose
end

-- A job that is loose and may not start goes to its queue, when all were chosen.
local function leave(one, id, priority, row)
  one.left = one.left == Choose.NOWHERE and {} or one.left
  one.left[#one.left + 1] = {id = id, priority = priority, row = row}
end

-- Notes a row of a queue that is about to be parked: it goes with that queue. Whether it is one.
local function pass_over(one, priority, id)
  for place = 1, #one.allowed, 2 do
    local state, cost = one.allowed[place], one.allowed[place + 1]
    if not Limits.has(state, cost) then
      one.met = one.met == Choose.NOWHERE and {} or one.met
      one.met[#one.met + 1], one.met[#one.met + 2] = priority, id
      return true
    end
  end
  return false
end

-- What limits a queue: states and costs, flat, none where it was found by other matchers; how many jobs may start,
-- `room` at most; whether it was.
local function allowed_of(queue, room, version, now_us)
  local items, allowed = Limits.items(queue), {}
  local is_old = items.version ~= version
  for place, item in ipairs(is_old and {} or items) do
    local state = Limits.state(item.bucket, item.name, item.cost, now_us)
    allowed[2 * place - 1], allowed[2 * place] = state, item.cost or false
    room = math.min(room, Limits.may(state, item.cost))
  end
  return allowed, room, is_old
end

-- The first jobs that may start: `limit` at most, between two priorities. `passed` more are looked at, for `refuse(id)`
-- is true of some. Returns ids; their queues, in order; queue → what `settle_queues` wants (settle.lua); whether there
-- may be more that was not looked at.
function Choose.choose(jobtype, limit, passed, priority_min, priority_max, version, refuse, now_us)
  local index, rows, at, offset, pool = K.queues .. jobtype, {}, 1, 0, {first = 1, last = 0}
  local ids, order, opened, empty, met = {}, {}, {}, 0, 0
  Limits.read_rules()
  local loose = loosely(jobtype, priority_min, priority_max, limit, passed, version, now_us)
  order.loose = loose
  local plain_id, plain_priority = Queues.first_between(jobtype, priority_min, priority_max)
  plain_priority = tonumber(plain_priority)
  local function next_row()
    if at > #rows and offset >= 0 then
      rows = Queues.read_between(index, priority_min, priority_max, offset, Choose.ROWS)
      at, offset = 1, #rows == 2 * Choose.ROWS and offset + Choose.ROWS or -1
      Queues.learn_paged_of(rows)
    end
    local row, priority = rows[at], tonumber(rows[at + 1])
    local mark = row and row:find(':', 1, true)
    local id = mark and row:sub(1, mark - 1)
    if plain_id and not (id and Order.precedes(priority, id, plain_priority, plain_id)) then
      return plain_priority, plain_id, jobtype
    elseif id then
      return priority, id, row:sub(mark + 1)
    end
    return nil
  end
  -- Whether its queue may have more.
  local function accept(one)
    local id = one.next_id
    if call.has_deaths and refuse(id) then
      return true
    end
    if not Limits.use(one.allowed) then
      return false
    end
    local taken = one.taken
    ids[#ids + 1], taken[#taken + 1] = id, id
    return true
  end
  local function open(queue)
    local allowed, most, is_old = allowed_of(queue, limit - #ids, version, now_us)
    opened[queue] = {
      queue = queue, priority = false, id = false, priority_min = priority_min, priority_max = priority_max,
      is_old = is_old, allowed = allowed, most = most >= 1 and most + passed or 0,
      share = math.max(Choose.FIRST, math.ceil(2 * limit / math.max(1, #rows))), asked = 0, at = -1,
      taken = {}, left = Choose.NOWHERE, rows = Choose.NOWHERE, where = Choose.NOWHERE, next_id = false,
      next_priority = false, spelled = false, met = Choose.NOWHERE,
    }
    order[#order + 1] = queue
    return opened[queue]
  end
  -- Those that are loose and before some other job, or all.
  local function accept_loose(priority, id)
    local filled, read, at, parked, accept, spelled, its_priority = #ids, loose.read, loose.at, loose.parked,
      loose.accept, nil, nil
    local its_ids, queues = loose.ids, loose.queues
    local met_most, visits, marked = Choose.PASSED, Choose.VISITS, nil
    while filled < limit and met < met_most and empty < visits do
      local its = its_ids[at]
      if not its then
        read = loose.read_on()
        if not read then
          break
        end
        its_ids, queues, at, parked = loose.ids, loose.queues, 1, loose.parked
        its = its_ids[1]
      end
      local queue, row, its_spelled = queues[at], read[2 * at - 1], read[2 * at]
      if its_spelled ~= spelled then
        spelled, its_priority = its_spelled, tonumber(its_spelled)
      end
      if id and Order.precedes(priority, id, its_priority, its) then
        break
      end
      at = at + 1
      if not call.has_deaths or not refuse(its) then
        if accept(its, queue, row, parked and Queues.is_parked(parked[at - 1])) then
          filled = filled + 1
          ids[filled] = its
          if its_priority ~= marked then
            marked = its_priority
            loose.priorities[marked] = true
          end
        else
          met, empty = met + 1, empty + (opened[queue] and 0 or 1)
          leave(opened[queue] or open(queue), its, its_priority, row)
        end
      end
    end
    loose.at = at
  end
  while #ids < limit and empty < Choose.VISITS and met < Choose.PASSED do
    local priority, id, queue = next_row()
    local one = pool[pool.first]
    while one and #ids < limit and not (priority and Order.precedes(priority, id, one.next_priority, one.next_id)) do
      accept_loose(one.next_priority, one.next_id)
      if #ids == limit or met >= Choose.PASSED or empty >= Choose.VISITS then
        break
      end
      pool.first = pool.first + 1
      if accept(one) and go_on(one) then
        put(pool, one)
      end
      one = pool[pool.first]
    end
    accept_loose(priority, id)
    if #ids == limit or met >= Choose.PASSED or empty >= Choose.VISITS then
      break
    elseif not priority then
      return ids, order, opened, false
    elseif queue == jobtype and id == plain_id then
      plain_id = nil
    else
      at = at + 2
    end
    one = opened[queue]
    if one and one.id then
      met = met + (pass_over(one, priority, id) and 1 or 0)
    else  -- some of its jobs may have been loose
      one = one or open(queue)
      one.priority, one.id = priority, id
      local has_next = go_on(one)
      empty = empty + (has_next and 0 or 1)
      if has_next and one.next_id == id and one.next_priority == priority then  -- it is the first of all
        has_next = accept(one) and go_on(one)
      end
      if has_next then
        put(pool, one)
      end
    end
  end
  return ids, order, opened, #ids < limit
end
