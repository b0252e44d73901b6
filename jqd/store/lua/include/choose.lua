-- Which jobs of a jobtype may start now, of all its queues: smallest priority first, then oldest. Needs keys, order, heads, pages, deaths, permits, limits.
-- Gives choose(jobtype, limit, passed, priority_min, priority_max, version, refuse, now_us): `passed` more are looked at, for `refuse(id)` is true of
-- some. Returns ids; their queues, in order; queue → what `take` and `park` want; whether there may be more that was not looked at.
-- `settle_queues(queues, opened, taken, fence, now_us)`: they were taken: counts them, and parks what may not go on.
-- Queues that give nothing, looked at in one claim; rows of the index, and jobs of a queue (at least), read at once; rows of queues whose limits are used
-- up, passed over in one claim; priorities of such queues that are asked for, for one call each. What is left of both the next claim meets.
local CHOICE = {visits = 100, rows = 64, first = 8, passed = 500, asked = 500}
local NOWHERE = {}  -- of jobs that are in no page

-- The next jobs of one queue, with their priorities, in order: at first its share, for other queues may have all the better ones.
local function read_on(one)
  local queue, least, most = one.queue, one.priority_min, one.priority_max
  one.asked = math.min(one.most, math.max(one.share, 4 * one.asked))
  if paged_of(queue) > 0 then
    local ids, where, heads = first_of(queue, one.asked, least, most)
    local rows, at = {}, -1
    for place, id in ipairs(where.all and ids or NOWHERE) do
      rows[2 * place - 1], rows[2 * place] = id, heads[1]
    end
    for place, id in ipairs(where.all and NOWHERE or ids) do
      at = heads[at + 3] == id and at + 2 or at
      rows[2 * place - 1], rows[2 * place] = id, heads[at]
    end
    one.rows, one.where = rows, where
    return
  end
  one.rows, one.where = reading.between('ready', ready_key(queue), least, most, 0, one.asked), NOWHERE
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
  if mine == its and has_no_locale then  -- what is asked most
    return one.next_id < other.next_id
  end
  return precedes(mine, one.next_id, its, other.next_id)
end

-- Queues in the order of their next jobs, at the places from `first` to `last`. One comes where it belongs: behind all others nearly always, or
-- before them, for their jobs came in turns, or together.
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

-- Notes a row of a queue that is about to be parked: it goes with that queue. Whether it is one.
function CHOICE.pass_over(one, priority, id)
  for place = 1, #one.allowed, 2 do
    local state, cost = one.allowed[place], one.allowed[place + 1]
    if not limits.has(state, cost) and not permits.may_ask(state) then
      one.met = one.met == NOWHERE and {} or one.met
      one.met[#one.met + 1], one.met[#one.met + 2] = priority, id
      return true
    end
  end
  return false
end

local function choose(jobtype, limit, passed, priority_min, priority_max, version, refuse, now_us)
  local index, rows, at, offset, pool = K.queues .. jobtype, {}, 1, 0, {first = 1, last = 0}
  local ids, order, opened, empty, met = {}, {}, {}, 0, 0
  limits.read_rules()
  local plain_id, plain_priority = first_between(jobtype, priority_min, priority_max)
  plain_priority = tonumber(plain_priority)
  local function next_row()
    if at > #rows and offset >= 0 then
      rows = reading.between('queues', index, priority_min, priority_max, offset, CHOICE.rows)
      at, offset = 1, #rows == 2 * CHOICE.rows and offset + CHOICE.rows or -1
      if has_pages then
        local queues = {}
        for place = 1, #rows, 2 do
          queues[#queues + 1] = rows[place]:match(':(.*)$')
        end
        keyed.learn_paged(queues)
      end
    end
    local row, priority = rows[at], tonumber(rows[at + 1])
    local mark = row and row:find(':', 1, true)
    local id = mark and row:sub(1, mark - 1)
    if plain_id and not (id and precedes(priority, id, plain_priority, plain_id)) then
      return plain_priority, plain_id, jobtype
    elseif id then
      return priority, id, row:sub(mark + 1)
    end
    return nil
  end
  -- Whether its queue may have more.
  local function accept(one)
    local id = one.next_id
    if has_deaths and refuse(id) then
      return true
    end
    if not limits.use(one.allowed) then
      return false
    end
    local taken = one.taken
    ids[#ids + 1], taken[#taken + 1] = id, id
    return true
  end
  local function open(queue, priority, id)
    local items, most, allowed = limits.items(queue), limit - #ids, {}
    local is_old = items.version ~= version
    for place, item in ipairs(is_old and {} or items) do
      local state = limits.state(item, now_us)
      allowed[2 * place - 1], allowed[2 * place] = state, item.cost or false
      most = math.min(most, limits.may(state, item.cost))
    end
    opened[queue] = {
      queue = queue, priority = priority, id = id, priority_min = priority_min, priority_max = priority_max, is_old = is_old, allowed = allowed,
      most = most >= 1 and most + passed or 0, share = math.max(CHOICE.first, math.ceil(2 * limit / math.max(1, #rows))), asked = 0, at = -1,
      taken = {}, rows = NOWHERE, where = NOWHERE, next_id = false, next_priority = false, spelled = false, met = NOWHERE,
    }
    order[#order + 1] = queue
    return opened[queue]
  end
  while #ids < limit and empty < CHOICE.visits and met < CHOICE.passed do
    local priority, id, queue = next_row()
    local one = pool[pool.first]
    while one and #ids < limit and not (priority and precedes(priority, id, one.next_priority, one.next_id)) do
      pool.first = pool.first + 1
      if accept(one) and go_on(one) then
        put(pool, one)
      end
      one = pool[pool.first]
    end
    if not priority or #ids == limit then
      return ids, order, opened, false
    elseif queue == jobtype and id == plain_id then
      plain_id = nil
    else
      at = at + 2
    end
    one = opened[queue]
    if one and CHOICE.pass_over(one, priority, id) then
      met = met + 1
    elseif not one then
      one = open(queue, priority, id)
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

-- The first job of each priority that was read, flat: priority, id.
local function heads_of(one)
  local heads, last = {}, nil
  for at = 1, #one.rows, 2 do
    if one.rows[at + 1] ~= last then
      last = one.rows[at + 1]
      heads[#heads + 1], heads[#heads + 2] = last, one.rows[at]
    end
  end
  return heads
end

-- Whether all was read that the queue has waiting up to any priority.
local function is_read(one) return #one.rows < 2 * one.asked and one.priority_max >= reading.WORST end

-- The first job that a queue has left of each priority, flat, or of the first `most` of them. What was read of it says so, if that was all.
local function heads_left(one, taken, most)
  local heads, last, from = {}, nil, '-inf'
  if is_read(one) and one.priority_min <= reading.BEST then
    for at = 1, #one.rows, 2 do
      local id, priority = one.rows[at], one.rows[at + 1]
      if priority ~= last and not taken[id] then
        heads[#heads + 1], heads[#heads + 2], last = priority, id, priority
      end
    end
    return heads
  end
  while #heads < 2 * most do
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
local function next_of(one, taken, place)
  for at = place + 2, #one.rows, 2 do
    if not taken[one.rows[at]] then
      return one.rows[at], one.rows[at + 1]
    end
  end
  if is_read(one) then
    return nil
  end
  return first_between(one.queue, one.rows[place + 1], '+inf')
end

-- Exchanges the rows of those of its jobs that were taken, and the one by which it was found, if that was wrong.
local function mend_heads(one, taken)
  local rows, is_right, last = one.rows, one.most < 1, nil
  for at = 1, #rows, 2 do
    local id, priority = rows[at], rows[at + 1]
    if priority ~= last then
      last = priority
      is_right = is_right or id == one.id and tonumber(priority) == one.priority
      if taken[id] then
        keyed.gone(priority, id, one.queue)
        local next_id, its = next_of(one, taken, at)
        if next_id then
          keyed.row(its, next_id, one.queue)
        end
      end
    end
  end
  if not is_right and head_of(one.queue, one.priority) ~= one.id then
    keyed.gone(one.priority, one.id, one.queue)
  end
end

-- Takes a queue that may give nothing more out of the indexes, with what was found of it there. Whether it is one. What was accepted is off the
-- states already, and not all of it was given: `fresh` are buckets that were asked anew. Also how many of its priorities went, of `asked` at most.
local function park(one, taken, fresh, now_us, asked)
  local is_used_up = false
  for place = 1, #one.allowed, 2 do
    is_used_up = is_used_up or not limits.has(one.allowed[place], one.allowed[place + 1])
  end
  if not is_used_up then
    return false, 0
  end
  for _, item in ipairs(limits.items(one.queue)) do
    if not fresh[item.bucket] then
      limits.states[item.bucket], fresh[item.bucket] = nil, true
    end
  end
  local most, bucket = limits.allows(one.queue, now_us)
  if most >= 1 or permits.may_ask(limits.states[bucket]) then
    return false, 0
  end
  keyed.gone(one.priority, one.id, one.queue)
  for at = 1, #one.met, 2 do
    keyed.gone(one.met[at], one.met[at + 1], one.queue)
  end
  if redis.call('HEXISTS', K.parked, one.queue) == 0 then
    local heads = heads_of(one)
    for at = 1, #heads, 2 do
      keyed.gone(heads[at], heads[at + 1], one.queue)
    end
    local left = heads_left(one, taken, asked)
    limits.park(one.queue, bucket, left, now_us)
    return true, #left / 2
  end
  return true, 0
end

local function given_of(one, taken)
  for _, id in ipairs(one.taken) do
    if not taken[id] then  -- bytes did not suffice
      local ids = {}
      for _, each in ipairs(one.taken) do
        ids[#ids + 1] = taken[each] and each
      end
      return ids
    end
  end
  return one.taken
end

-- `taken`: id → true of those that were given. What gave some, or nothing because of its limits, may have to wait.
local function settle_queues(order, opened, taken, fence, now_us)
  if #order == 0 then
    return
  end
  keyed.gather(keyed.type_of(order[1]))
  for _, queue in ipairs(order) do
    local one = opened[queue]
    local ids = given_of(one, taken)
    if #ids > 0 and not keyed.is(queue) then
      take(queue, ids, one.where, heads_of(one))
    elseif #ids > 0 then
      remove(queue, ids, one.where)
      if not one.is_old then
        limits.spend(queue, ids)
      end
    end
  end
  limits.write_spent(fence, now_us)
  local fresh, asked = {}, CHOICE.asked
  for _, queue in ipairs(order) do
    local is_parked, rows = false, 0
    if keyed.is(queue) then
      is_parked, rows = park(opened[queue], taken, fresh, now_us, math.max(1, asked))
      asked = asked - rows
      if not is_parked then
        mend_heads(opened[queue], taken)
      end
    end
  end
  keyed.write()
end
