-- Which jobs of a jobtype may start now where jobs age, in place of `choose` (choose.lua).
-- Gives choose: as `choose` does, by rank instead of priority, down to the rank call.bound.
function starts.bound() return math.huge end

local FIRST, MORE = 8, 4  -- jobs of a keyed queue that are read first; so many times as many each time after

local function is_ahead(one, other) return Order.precedes(one.rank, one.id, other.rank, other.id) end

-- Jobs of a level, and from which rank on; one more than are given, so that it is known what comes next.
local function read(level)
  local most = Queues.is_keyed(level.queue) and math.max(FIRST, MORE * level.asked) or level.most
  level.asked = math.max(Ageing.deep(), math.min(level.most, most)) + 1
  level.ids, level.where = Pages.first_of(level.queue, level.asked, level.priority, level.priority)
  level.ranks = Ageing.ranks(level.priority, level.ids)
end

-- Goes on to the next job of a level. Whether there is one.
local function go_on(level)
  level.at = level.at + 1
  if not level.ids[level.at] and #level.ids == level.asked and level.asked <= level.most then
    read(level)
  end
  level.id, level.rank = level.ids[level.at], level.ranks[level.at]
  return level.id ~= nil
end

local function insert(pool, level)
  local low, high = 1, #pool + 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if is_ahead(pool[middle], level) then
      low = middle + 1
    else
      high = middle
    end
  end
  table.insert(pool, low, level)
end

-- The levels of a jobtype by the rank of their first jobs: each call says which comes next, or takes it.
local function source(jobtype, least, most)
  local plain = Ageing.levels(jobtype, least, most, call.wanted)
  local rows = call.has_keyed and Ageing.walk(K.queues .. jobtype, least, most, call.wanted)
  local loose = call.has_keyed and Ageing.walk(Queues.loose_key(jobtype), least, most, call.wanted)
  local at = 1
  local function better(one, other) return one and (not other or not is_ahead(other, one)) and one or other end
  local function peek() return better(plain[at], better(rows and rows.peek(), loose and loose.peek())) end
  local function take()
    local one = peek()
    if one == plain[at] then
      at = at + 1
      return jobtype, one.id, one.priority
    end
    local is_loose = loose and one == loose.peek()
    local row, _, priority = (is_loose and loose or rows).take()
    local id, queue = row:match('^([^:]*):(.*)$')
    return queue, id, priority, is_loose and row
  end
  return peek, take
end

-- What `settle_queues` wants: jobs of all levels of a queue that were read, by priority.
local function close(opened)
  for _, one in pairs(opened) do
    table.sort(one.levels, function(this, other) return this.priority < other.priority end)
    for _, level in ipairs(one.levels) do
      for _, id in ipairs(level.ids) do
        one.rows[#one.rows + 1] = id
        one.rows[#one.rows + 1] = level.priority
      end
      for _, id in ipairs(level.ids) do
        one.where[id] = level.where[id] or level.where.all
      end
    end
  end
end

function Elder.choose(jobtype, limit, passed, least, most, version, refuse, now_us)
  local peek, take = source(jobtype, least, most)
  local ids, order, opened, pool, empty, met = {}, {}, {}, {}, 0, 0
  local loose = Choose.loosely(jobtype, least, most, 0, 0, version, now_us)
  order.loose = loose

  local function open(queue, id, priority)
    local allowed, its, is_old = Choose.allowed(queue, limit, version, now_us)
    order[#order + 1] = queue
    opened[queue] = {
      queue = queue, priority = priority, id = id, met = Choose.NOWHERE, priority_min = least, priority_max = most, is_old = is_old, allowed = allowed,
      most = its >= 1 and its + passed or 0, asked = 0, left = Choose.NOWHERE, taken = {}, rows = {}, where = {}, levels = {},
    }
  end

  -- Whether its queue may have more.
  local function accept(level)
    local one = level.one
    if refuse(level.id) then
      return true
    end
    if not Limits.use(one.allowed) then
      return false
    end
    ids[#ids + 1], one.taken[#one.taken + 1] = level.id, level.id
    return true
  end

  -- Reads the first jobs of a level, or takes the one that is loose.
  local function begin(queue, id, priority, row)
    if row then
      if refuse(id) then
        return
      elseif loose.accept(id, queue, row, redis.call('HEXISTS', K.parked, queue) == 1) then
        ids[#ids + 1], loose.priorities[priority] = id, true
        return
      elseif not opened[queue] then
        open(queue, false, false)
        empty = empty + 1
      end
      Choose.leave(opened[queue], id, priority, row)
      met = met + 1
      return
    elseif not opened[queue] then
      open(queue, id, priority)
    elseif Choose.pass_over(opened[queue], priority, id) then
      met = met + 1
      return
    end
    local one = opened[queue]
    local level = {one = one, queue = queue, priority = priority, most = one.most, asked = 0, at = 0, ids = {}, ranks = {}, where = {}}
    if one.most < 1 then
      empty = empty + 1
      return
    end
    one.levels[#one.levels + 1] = level
    read(level)
    if level.ids[1] ~= id then  -- that row is wrong
      one.id, one.priority = id, priority
    end
    if go_on(level) then
      insert(pool, level)
    else
      empty = empty + 1
    end
  end

  local is_short = true
  while #ids < limit and empty < Choose.VISITS and met < Choose.PASSED do
    local top, row = pool[1], peek()
    local is_top = top and not (row and is_ahead(row, top))
    local following = is_top and top or row
    if not following or following.rank > call.bound then
      is_short = false
      break
    elseif is_top then
      table.remove(pool, 1)
      if accept(top) and go_on(top) then
        insert(pool, top)
      end
    else
      begin(take())
    end
  end
  close(opened)
  return ids, order, opened, is_short and #ids < limit
end
