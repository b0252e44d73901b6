-- What constraints allow (docs/adr/0048). Whatever limits a job is in the name of its keyed queue:
--
--     "<jobtype>\30<version>", then for each constraint that matches "\30<constraint>\29<cost>\29<key>"
--
-- version: of the matchers that found the constraints; cost: what one job takes of a rate, '' if the matcher failed:
-- such jobs wait until somebody mends it. A *bucket*, "<constraint>\29<key>", is what is counted and limited.
--
--     limits           hash  constraint → "limit window_us burst concurrency until_ms said_ms digest"; 0: no such limit
--     spent            hash  bucket → what was spent in the window, in pieces of at most a 64th of it:
--                            "begin_us end_us owed count total", then " end_us:count" for each earlier piece, oldest
--                            first. begin, end and count are of the latest piece; total is of all; owed is what was
--                            spent and not given back by the rate at its end. A piece counts until its end leaves the
--                            window: a claim may count a 64th too long, but never too short
--     busy:<bucket>    zset  id → fence of jobs in flight; their records name the queue (about.lua)
--     due              zset  place where queues wait (parked.lua) → when (ms) to look at it
--     again            zset  places to look at now, for a constraint changed
starts.bucket_states, starts.limit_rules, starts.queue_items = empty, empty, empty
Limits.FAILED = '\29!'  -- ends the bucket of jobs for which a matcher failed
Limits.EVER_MS = 9000000000000000
-- queues let go at once for one start; more may be of types that no worker takes, and stand before others
Limits.FEW = 20
Limits.MANY = 100  -- queues looked at together
Limits.AGAIN_MS = 100  -- until more are let go, while the limit has room
Limits.RECOUNT_MS = 60000  -- between two counts of jobs in flight, which mend what was lost
Limits.PIECES = 64  -- of a window
Limits.SWEEP_ROWS = 50  -- rows looked at together: less than half a millisecond
Limits.PRIORITIES = 1000  -- of one queue, moved at once
-- rows of queues that one function may let go; the others follow soon
function starts.let_go_left() return 2000 end

-- Returns the bucket of a queue, and {name, cost, version}, if the queue differs only by its key from one that was
-- read; else nothing.
function Limits.bucket_of(queue)
  local shape = call.queue_shape
  if shape and queue:find(shape.front, 1, true) == 1 and not queue:find('\30', shape.length + 1, true) then
    return shape.name .. queue:sub(shape.length), shape
  end
  return nil
end

-- Returns the constraints in a queue's name: a list of {name, bucket, cost}, with a field `version`.
function Limits.items(queue)
  local items = call.queue_items[queue]
  if items then
    return items
  end
  local bucket = Limits.bucket_of(queue)
  if bucket then
    items = {{name = call.queue_shape.name, cost = call.queue_shape.cost, bucket = bucket},
      version = call.queue_shape.version}
    call.queue_items[queue] = items
    return items
  end
  local at = queue:find('\30', 1, true)
  local mark = at and queue:find('\30', at + 1, true)
  items = {version = at and queue:sub(at + 1, (mark or 0) - 1) or ''}
  while mark do
    local name, cost, key = queue:match('^([^\29\30]*)\29([^\29\30]*)(\29[^\30]*)', mark + 1)
    if name then
      items[#items + 1] = {name = name, cost = tonumber(cost), bucket = name .. key}
    end
    if name and #key > 1 and not call.queue_shape then
      local length = mark + #name + #cost + 2
      call.queue_shape = {length = length, front = queue:sub(1, length), name = name, cost = tonumber(cost),
        version = items.version}
    end
    mark = queue:find('\30', mark + 1, true)
  end
  if #items > 1 then
    call.queue_shape = nil
  end
  call.queue_items[queue] = items
  return items
end

-- Reads all constraints in one call, unless they are many.
function Limits.read_rules()
  if redis.call('HLEN', K.limits) <= Limits.MANY then
    local words = redis.call('HGETALL', K.limits)
    call.limit_rows = {}
    for at = 1, #words, 2 do
      call.limit_rows[words[at]] = words[at + 1]
    end
  end
end

-- Returns what a constraint limits; false: there is none of that name.
function Limits.rule(name)
  local rule = call.limit_rules[name]
  if rule == nil then
    local row = (call.limit_rows and call.limit_rows[name] or not call.limit_rows
      and redis.call('HGET', K.limits, name)) or ''
    local limit, window_us, burst, concurrency, until_ms, said_ms = row:match('^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+)')
    rule = limit and {
      limit = limit == '0' and 0 or tonumber(limit), window_us = window_us == '0' and 0 or tonumber(window_us),
      burst = burst == '0' and 0 or tonumber(burst),
      concurrency = concurrency == '0' and 0 or tonumber(concurrency),
      until_ms = until_ms == '0' and 0 or tonumber(until_ms), said_ms = tonumber(said_ms),
    } or false
    call.limit_rules[name] = rule
  end
  return rule
end

-- Reads a row of `spent`. Returns what still counts, and when (us) the oldest piece of it ended; nothing if nothing
-- counts. What is owed never exceeds what the rule allows now: nobody waits for what another rule would have to give
-- back, and what a faster rule gave back stays given if a slower one is set again (docs/use/SCHEDULING.md).
function Limits.spent_in(row, bucket, rule, now_us)
  local begin_us, end_us, owed, count, total, before = row:match('^(%S+) (%S+) (%S+) (%S+) (%S+)(.*)$')
  local spent = {
    begin_us = tonumber(begin_us), end_us = tonumber(end_us), owed = tonumber(owed), count = tonumber(count),
    total = tonumber(total), before = before,
  }
  if spent.end_us > now_us then  -- the server's clock was set back: all counts as spent now
    spent.begin_us, spent.end_us, spent.count, spent.before = now_us, now_us, spent.total, ''
    redis.call('HSET', K.spent, bucket, Limits.row_spent(spent))
  end
  local window_us = rule.window_us
  spent.owed = math.max(0, math.min(spent.owed, rule.limit + rule.burst)
    - (now_us - spent.end_us) * rule.limit / window_us)
  if spent.end_us <= now_us - window_us then  -- the latest piece is out of the window, so all are
    spent.count, spent.total, spent.before = 0, 0, ''
    return spent.owed > 0 and spent or nil
  end
  local at, first_us = 1, spent.end_us
  while at <= #spent.before do
    local until_us, piece_count, behind = spent.before:match('^ (%d+):(%d+)()', at)
    if tonumber(until_us) > now_us - window_us then
      first_us = tonumber(until_us)
      break
    end
    spent.total, at = spent.total - tonumber(piece_count), behind
  end
  spent.before = spent.before:sub(at)
  return spent, first_us
end

-- Returns the row of `spent` that `spent_in` reads.
function Limits.row_spent(spent)
  return string.format('%d %d %.14g %d %d%s', spent.begin_us, spent.end_us, spent.owed, spent.count, spent.total,
    spent.before)
end

-- Returns until when (us) a rate allows nothing, as the store may have forgotten that all was spent; 0: it did not.
function Limits.clear_us(rule)
  local clear_us = rule.clear_us
  if not clear_us then
    clear_us = 0
    local high, began_us = unpack(redis.call('HMGET', K.life, 'high', 'began'))
    high, began_us = tonumber(high or nil) or 0, tonumber(began_us or nil) or 0
    if rule.said_ms * 1000 < high then
      clear_us = began_us + rule.window_us
    end
    rule.clear_us = clear_us
  end
  return clear_us
end

-- Returns how much a rate still allows, when (us) it allows more, and what was spent. `row`: of `spent`, or nothing. A
-- burst is added to the limit of any window, and comes back at the rate of the limit.
function Limits.rate_of(rule, bucket, row, now_us)
  local spent, first_us
  if row then
    spent, first_us = Limits.spent_in(row, bucket, rule, now_us)
  end
  local clear_us = Limits.clear_us(rule)
  if now_us < clear_us then
    return 0, clear_us, spent
  elseif not spent then
    return rule.limit + rule.burst
  end
  local size = rule.limit + rule.burst
  local left, next_us = size - spent.total, first_us and first_us + rule.window_us
  if rule.burst > 0 and size - math.ceil(spent.owed) < left then
    local wait_us = math.max((spent.owed - size + 1) * rule.window_us / rule.limit, 1000)
    left, next_us = size - math.ceil(spent.owed), now_us + wait_us
  end
  return math.max(0, left), next_us, spent
end

-- Drops some rows of `spent` that count no more; each call goes on where the last one ended. Returns how many went; 0
-- if they were too few to look for more yet.
function Limits.sweep(now_us)
  local from = redis.call('EXISTS', K.spent) == 1 and (redis.call('HGET', K.life, 'swept') or '0')
  if not from then
    return 0
  end
  local place, rows = unpack(redis.call('HSCAN', K.spent, from, 'MATCH', '*', 'COUNT', Limits.SWEEP_ROWS))
  local gone = {}
  for at = 1, #rows, 2 do
    local rule = Limits.rule(rows[at]:match('^[^\29]*'))
    if not rule or rule.limit == 0 or not Limits.spent_in(rows[at + 1], rows[at], rule, now_us) then
      gone[#gone + 1] = rows[at]
    end
  end
  redis.call('HSET', K.life, 'swept', place)
  Index.call_with(gone, 'HDEL', K.spent)
  return 4 * #gone >= #rows and #gone or 0
end

-- From now on `state` leaves out what rates allow, until `read_rates` is called by the same function.
function Limits.put_off() call.unread_rates = {} end

-- Reads, in few calls, the rates that `state` left out since `put_off`.
function Limits.read_rates(now_us)
  local states = call.unread_rates
  call.unread_rates = nil
  for first = 1, #states, Limits.MANY do
    local buckets = {}
    for at = first, math.min(#states, first + Limits.MANY - 1) do
      buckets[#buckets + 1] = states[at].bucket
    end
    for at, row in ipairs(redis.call('HMGET', K.spent, unpack(buckets))) do
      local state, due_us = states[first + at - 1], nil
      state.rate, due_us, state.last = Limits.rate_of(state.rule, state.bucket, row, now_us)
      state.due_us = state.due_us or due_us  -- concurrency may have set it, and counts first, as in `state`
    end
  end
end

-- Returns what a bucket still allows: `rate` and `slots`; `due_us`: when more; `spent`: by this claim. It has seven
-- fields (with a ninth Lua makes room for sixteen), and more only when used up.
function Limits.state(bucket, name, cost, now_us)
  local state = call.bucket_states[bucket]
  if state then
    return state
  end
  local rule = call.limit_rules[name] or Limits.rule(name)
  local huge = math.huge
  state = {rate = huge, slots = huge, due_us = false, last = false, bucket = bucket, rule = rule, spent = 0}
  call.bucket_states[bucket] = state
  if not rule then
    return state
  elseif rule.until_ms * 1000 > now_us then
    state.slots, state.due_us = 0, rule.until_ms * 1000
    return state
  elseif not cost and bucket:sub(-2) == Limits.FAILED then
    state.slots = 0
    return state
  end
  if rule.limit > 0 then
    if call.unread_rates then
      call.unread_rates[#call.unread_rates + 1] = state
    else
      state.rate, state.due_us, state.last = Limits.rate_of(rule, bucket, redis.call('HGET', K.spent, bucket), now_us)
    end
  end
  if rule.concurrency > 0 then
    if call.early > 0 then  -- a job in flight that has not come yet may be of this bucket
      state.slots, state.due_us = 0, now_us + Limits.AGAIN_MS * 1000
    else
      state.slots = math.max(0, rule.concurrency - redis.call('ZCARD', K.busy .. bucket))
      state.is_count = state.slots == 0 or nil
    end
  end
  return state
end

-- Returns whether a bucket allows one job of that cost.
function Limits.has(state, cost) return state.slots >= 1 and cost and state.rate >= cost end

-- Takes one job from all buckets of a queue, if all allow it; returns whether. `allowed`: states and costs, flat.
function Limits.use(allowed)
  for place = 1, #allowed, 2 do
    local state, cost = allowed[place], allowed[place + 1]
    if state.slots < 1 or not cost or state.rate < cost then
      for before = 1, place - 1, 2 do
        state, cost = allowed[before], allowed[before + 1]
        state.slots, state.rate = state.slots + 1, state.rate + cost
      end
      return false
    end
    state.slots, state.rate = state.slots - 1, state.rate - cost
  end
  return true
end

-- Returns how many jobs of that cost a bucket allows.
function Limits.may(state, cost)
  if not cost then
    return 0
  end
  return cost > 0 and math.min(state.slots, math.floor(state.rate / cost)) or state.slots
end

-- Returns how many jobs of a queue may start now, and the bucket that allows no more.
function Limits.allows(queue, now_us)
  local most, by = math.huge, nil
  for _, item in ipairs(Limits.items(queue)) do
    local may = Limits.may(Limits.state(item.bucket, item.name, item.cost, now_us), item.cost)
    if may < most then
      most, by = may, item.bucket
    end
  end
  return most, by
end
