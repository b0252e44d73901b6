-- Chooses the jobs of a claim: the first ones of a jobtype that may start, smallest priority first, then oldest. Three
-- sorted sources are merged: the queue without constraints; `queues:`, whose rows lead to keyed queues that are walked
-- side by side; and `loose:`, whose rows are single jobs. A job is chosen only if each of its constraints allows one
-- more, and then counts at once (Limits.use). Nothing is written: settle.lua does that.
-- VISITS: queues without a job to give that one claim looks at. ROWS: rows of the index read at once. FIRST: jobs of a
-- queue read at once, at least. PASSED: rows of used-up queues that one claim skips. ASKED: priorities of such queues
-- that it looks up, one call each. LOOSE: rows of `loose:` read at once. The next claim meets what is left.
Choose.VISITS, Choose.ROWS, Choose.FIRST, Choose.PASSED, Choose.ASKED, Choose.LOOSE = 100, 64, 8, 500, 500, 100
Choose.NOWHERE = {}  -- stands for any empty table

-- Reads the next jobs of a queue, in order with their priorities. The first read is small: other queues may have all
-- the better ones.
local function read_more(walk)
  local queue, least, most = walk.queue, walk.priority_min, walk.priority_max
  walk.asked = math.min(walk.most, math.max(walk.share, 4 * walk.asked))
  if Queues.paged_of(queue) > 0 then
    local ids, where, heads = Pages.first_of(queue, walk.asked, least, most)
    local rows, at = {}, -1
    for place, id in ipairs(where.all and ids or Choose.NOWHERE) do
      rows[2 * place - 1], rows[2 * place] = id, heads[1]
    end
    for place, id in ipairs(where.all and Choose.NOWHERE or ids) do
      at = heads[at + 3] == id and at + 2 or at
      rows[2 * place - 1], rows[2 * place] = id, heads[at]
    end
    walk.rows, walk.where = rows, where
    return
  end
  walk.rows, walk.where = Queues.read_between(ready_key(queue), least, most, 0, walk.asked), Choose.NOWHERE
end

-- Steps to the next job of a queue. Returns whether there is one.
local function step(walk)
  local at = walk.at + 2
  if not walk.rows[at] and #walk.rows == 2 * walk.asked and walk.asked < walk.most then
    read_more(walk)
  end
  local rows = walk.rows
  local id, spelled = rows[at], rows[at + 1]
  walk.at, walk.next_id = at, id
  if spelled ~= walk.priority_text then
    walk.priority_text, walk.next_priority = spelled, tonumber(spelled)
  end
  return id ~= nil
end

local function is_ahead(walk, other)
  local mine, theirs = walk.next_priority, other.next_priority
  if mine == theirs and Order.has_no_locale then  -- the usual case
    return walk.next_id < other.next_id
  end
  return Order.precedes(mine, walk.next_id, theirs, other.next_id)
end

-- Inserts a walk into those between `first` and `last`, which are in the order of their next jobs. Nearly always it
-- comes last or first: jobs of the queues came in turns, or together.
local function insert(pool, walk)
  local first, last = pool.first, pool.last
  if first > last or not is_ahead(walk, pool[last]) then
    pool[last + 1], pool.last = walk, last + 1
  elseif first > 1 and is_ahead(walk, pool[first]) then
    pool[first - 1], pool.first = walk, first - 1
  else
    local low, high = first, last
    while low < high do
      local middle = math.floor((low + high) / 2)
      if is_ahead(walk, pool[middle]) then
        high = middle
      else
        low = middle + 1
      end
    end
    for at = last, low, -1 do
      pool[at + 1] = pool[at]
    end
    pool[low], pool.last = walk, last + 1
  end
end

-- Reads jobs of `loose:`. Fields: `read`, flat with priorities, with `ids` and `queues`; `at`: the place of the next of
-- them; `parked`: which queues are; of the accepted jobs `rows`, `priorities` (as keys) and `groups` by queue.
-- accept(id, queue, row, is_parked) returns whether a job may start; read_more() the next rows, or nil. All this runs
-- for each job of a claim, where a function call costs as much as ten steps without.
local function loosely(jobtype, priority_min, priority_max, limit, passed, version, now_us)
  local key, offset, groups, all_groups, begun, rows, filled = Queues.loose_key(jobtype), 0, {}, {}, 0, {}, 0
  local loose = {at = 1, read = {}, ids = {}, queues = {}, parked = false, rows = rows, priorities = {},
    groups = all_groups}
  local count, find, sub = math.min(limit + passed, Choose.LOOSE), string.find, string.sub

  -- A group is a list of the accepted ids of a queue. Most have one id, so it is made with room for one.
  local function begin(queue)
    local bucket, shape = Limits.bucket_of(queue)
    local items = shape or Limits.items(queue)
    local allowed = Choose.NOWHERE  -- the queue is of other matchers: the caller knows what limits its jobs
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

  function loose.read_more()
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

-- Notes a loose job that may not start. It comes to its queue once all are chosen (settle.lua).
local function send_to_queue(walk, id, priority, row)
  walk.tied_jobs = walk.tied_jobs == Choose.NOWHERE and {} or walk.tied_jobs
  walk.tied_jobs[#walk.tied_jobs + 1] = {id = id, priority = priority, row = row}
end

-- Notes a further index row of a queue that is to be parked: it goes, too. Returns whether the queue is used up.
local function pass_row(walk, priority, id)
  for place = 1, #walk.allowed, 2 do
    local state, cost = walk.allowed[place], walk.allowed[place + 1]
    if not Limits.has(state, cost) then
      walk.passed_over = walk.passed_over == Choose.NOWHERE and {} or walk.passed_over
      walk.passed_over[#walk.passed_over + 1], walk.passed_over[#walk.passed_over + 2] = priority, id
      return true
    end
  end
  return false
end

-- Returns the states and costs of a queue's constraints, flat; how many of its jobs may start, `room` at most; whether
-- the queue is of other matchers: then nothing limits it here.
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

-- Chooses up to `limit` jobs between two priorities. `refuse(id)` is true of up to `passed` jobs, which are skipped.
-- Returns ids; the queues that were walked, in order; queue → its walk, for Settle.settle_queues; whether there may be
-- more jobs that may start.
function Choose.choose(jobtype, limit, passed, priority_min, priority_max, version, refuse, now_us)
  local index, rows, at, offset, pool = K.queues .. jobtype, {}, 1, 0, {first = 1, last = 0}
  local ids, order, opened, empty, passed_rows = {}, {}, {}, 0, 0
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
  -- Takes the next job of a queue, if it may start. Returns whether the queue may give more.
  local function accept(walk)
    local id = walk.next_id
    if call.has_deaths and refuse(id) then
      return true
    end
    if not Limits.use(walk.allowed) then
      return false
    end
    local taken = walk.taken
    ids[#ids + 1], taken[#taken + 1] = id, id
    return true
  end
  local function open(queue)
    local allowed, most, is_old = allowed_of(queue, limit - #ids, version, now_us)
    opened[queue] = {
      queue = queue, found_priority = false, found_id = false, priority_min = priority_min,
      priority_max = priority_max, is_old = is_old, allowed = allowed, most = most >= 1 and most + passed or 0,
      share = math.max(Choose.FIRST, math.ceil(2 * limit / math.max(1, #rows))), asked = 0, at = -1,
      taken = {}, tied_jobs = Choose.NOWHERE, rows = Choose.NOWHERE, where = Choose.NOWHERE, next_id = false,
      next_priority = false, priority_text = false, passed_over = Choose.NOWHERE,
    }
    order[#order + 1] = queue
    return opened[queue]
  end
  -- Takes the loose jobs that are before a given job and may start; without one, all that may.
  local function accept_loose(priority, id)
    local filled, read, at, parked, accept, last_text, loose_priority = #ids, loose.read, loose.at, loose.parked,
      loose.accept, nil, nil
    local loose_ids, queues = loose.ids, loose.queues
    local passed_max, visits_max, marked = Choose.PASSED, Choose.VISITS, nil
    while filled < limit and passed_rows < passed_max and empty < visits_max do
      local loose_id = loose_ids[at]
      if not loose_id then
        read = loose.read_more()
        if not read then
          break
        end
        loose_ids, queues, at, parked = loose.ids, loose.queues, 1, loose.parked
        loose_id = loose_ids[1]
      end
      local queue, row, priority_text = queues[at], read[2 * at - 1], read[2 * at]
      if priority_text ~= last_text then
        last_text, loose_priority = priority_text, tonumber(priority_text)
      end
      if id and Order.precedes(priority, id, loose_priority, loose_id) then
        break
      end
      at = at + 1
      if not call.has_deaths or not refuse(loose_id) then
        if accept(loose_id, queue, row, parked and Queues.is_parked(parked[at - 1])) then
          filled = filled + 1
          ids[filled] = loose_id
          if loose_priority ~= marked then
            marked = loose_priority
            loose.priorities[marked] = true
          end
        else
          passed_rows, empty = passed_rows + 1, empty + (opened[queue] and 0 or 1)
          send_to_queue(opened[queue] or open(queue), loose_id, loose_priority, row)
        end
      end
    end
    loose.at = at
  end
  while #ids < limit and empty < Choose.VISITS and passed_rows < Choose.PASSED do
    local priority, id, queue = next_row()
    local walk = pool[pool.first]
    while walk and #ids < limit and not (priority and Order.precedes(priority, id, walk.next_priority, walk.next_id)) do
      accept_loose(walk.next_priority, walk.next_id)
      if #ids == limit or passed_rows >= Choose.PASSED or empty >= Choose.VISITS then
        break
      end
      pool.first = pool.first + 1
      if accept(walk) and step(walk) then
        insert(pool, walk)
      end
      walk = pool[pool.first]
    end
    accept_loose(priority, id)
    if #ids == limit or passed_rows >= Choose.PASSED or empty >= Choose.VISITS then
      break
    elseif not priority then
      return ids, order, opened, false
    elseif queue == jobtype and id == plain_id then
      plain_id = nil
    else
      at = at + 2
    end
    walk = opened[queue]
    if walk and walk.found_id then
      passed_rows = passed_rows + (pass_row(walk, priority, id) and 1 or 0)
    else  -- it may have a walk already, for its loose jobs
      walk = walk or open(queue)
      walk.found_priority, walk.found_id = priority, id
      local has_next = step(walk)
      empty = empty + (has_next and 0 or 1)
      if has_next and walk.next_id == id and walk.next_priority == priority then  -- nothing is before it
        has_next = accept(walk) and step(walk)
      end
      if has_next then
        insert(pool, walk)
      end
    end
  end
  return ids, order, opened, #ids < limit
end
