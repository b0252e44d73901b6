-- What constraints allow (docs/adr/0048). A keyed queue is "<jobtype>\30<version>" and, for each constraint that
-- matches its jobs, "\30<constraint>\29<cost>\29<key>". The version tells by which matchers it was found; the cost is
-- what one job takes of a rate, nothing where the matcher failed: such jobs wait until somebody mends it. A *bucket*,
-- "<constraint>\29<key>", is what is limited.
--
--     limits           hash  constraint → "limit window_us burst concurrency until_ms said_ms digest"; 0 where it does
--                            not limit so.
--     spent            hash  bucket → claims in the window, in pieces of at most a 64th of it: "begin_us end_us owed
--                            count total", of the latest piece but for the total and what was owed at its end: all that
--                            was spent, less what the rate gave back; then " end_us:count" of each earlier one, the
--                            oldest first. A piece counts until its end is out of the window: never less than was
--                            spent, and for a claim a 64th too long at most
--     busy:<bucket>    zset  id → fence of those in a hand; their records have the queue (about.lua)
--     due              zset  place where queues wait (parked.lua) → when (ms) it is to be looked at again; `again`:
--                            those to be looked at once, for a constraint was changed
starts.bucket_states, starts.limit_rules, starts.queue_items = empty, empty, empty
Limits.FAILED = '\29!'  -- ends the bucket of jobs that a matcher failed on
Limits.EVER_MS = 9000000000000000
-- queues let go at once for one start: those of jobtypes that no worker takes must not stand before others
Limits.FEW = 20
Limits.MANY = 100  -- queues looked at in one go
Limits.AGAIN_MS = 100  -- until more are let go, while the limit has room
Limits.RECOUNT_MS = 60000  -- between two counts of who is in a hand, which mend what was forgotten
Limits.PIECES = 64  -- of a window
Limits.SWEEP_ROWS = 50  -- rows looked at in one go: less than half a millisecond
Limits.PRIORITIES = 1000  -- of one queue, moved at once
-- rows of queues that are let go, written by one function; the others soon after
function starts.let_go_left() return 2000 end

-- The bucket of a queue, and {name, cost, version}; nothing where that is not seen at once. Of a queue that has all but
-- the key in common with one that was read.
function Limits.bucket_of(queue)
  local its = call.queue_shape
  if its and queue:find(its.front, 1, true) == 1 and not queue:find('\30', its.length + 1, true) then
    return its.name .. queue:sub(its.length), its
  end
  return nil
end

-- The constraints that limit a queue: a list of {name, bucket, cost}. Also the version, by its name.
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

-- The version of the matchers that found a queue.
function Limits.version_of(queue) return Limits.items(queue).version end

-- Reads all constraints at once. Few are read by one call: for a claim wants them all.
function Limits.read_rules()
  if redis.call('HLEN', K.limits) <= Limits.MANY then
    local words = redis.call('HGETALL', K.limits)
    call.limit_rows = {}
    for at = 1, #words, 2 do
      call.limit_rows[words[at]] = words[at + 1]
    end
  end
end

-- What a constraint allows; false: there is none of that name.
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

-- From a row of `spent`: what still counts of it, and since when (us) the oldest of that does; nothing: none, nor is
-- its burst spent. What is owed is a number of starts, and never more than the rule has now: so an edit of it makes
-- nobody wait for what another rule would have given back, and what a faster rule has given back stays so when a slower
-- one is said again (docs/use/SCHEDULING.md).
function Limits.spent_in(row, bucket, rule, now_us)
  local begin_us, end_us, owed, count, total, before = row:match('^(%S+) (%S+) (%S+) (%S+) (%S+)(.*)$')
  local its = {
    begin_us = tonumber(begin_us), end_us = tonumber(end_us), owed = tonumber(owed), count = tonumber(count),
    total = tonumber(total), before = before,
  }
  if its.end_us > now_us then  -- the server's clock was set back: all of it counts as spent now
    its.begin_us, its.end_us, its.count, its.before = now_us, now_us, its.total, ''
    redis.call('HSET', K.spent, bucket, Limits.row_spent(its))
  end
  local window_us = rule.window_us
  its.owed = math.max(0, math.min(its.owed, rule.limit + rule.burst) - (now_us - its.end_us) * rule.limit / window_us)
  if its.end_us <= now_us - window_us then  -- and so are all before it
    its.count, its.total, its.before = 0, 0, ''
    return its.owed > 0 and its or nil
  end
  local at, first_us = 1, its.end_us
  while at <= #its.before do
    local until_us, its_count, behind = its.before:match('^ (%d+):(%d+)()', at)
    if tonumber(until_us) > now_us - window_us then
      first_us = tonumber(until_us)
      break
    end
    its.total, at = its.total - tonumber(its_count), behind
  end
  its.before = its.before:sub(at)
  return its, first_us
end

-- The row of `spent` that `spent_in` reads.
function Limits.row_spent(its)
  return string.format('%d %d %.14g %d %d%s', its.begin_us, its.end_us, its.owed, its.count, its.total, its.before)
end

-- What was spent in the time that the store has forgotten nobody knows: until then it may have been all. 0: nothing was
-- forgotten.
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

-- What a rate still allows, when it allows more, and what was spent; `row`: of `spent`, or nothing. A burst is on top
-- of the limit in any window, and comes back at the rate of the limit.
function Limits.rate_of(rule, bucket, row, now_us)
  local its, first_us
  if row then
    its, first_us = Limits.spent_in(row, bucket, rule, now_us)
  end
  local clear_us = Limits.clear_us(rule)
  if now_us < clear_us then
    return 0, clear_us, its
  elseif not its then
    return rule.limit + rule.burst
  end
  local size = rule.limit + rule.burst
  local left, next_us = size - its.total, first_us and first_us + rule.window_us
  if rule.burst > 0 and size - math.ceil(its.owed) < left then
    left, next_us = size - math.ceil(its.owed), now_us + math.max((its.owed - size + 1) * rule.window_us / rule.limit,
      1000)
  end
  return math.max(0, left), next_us, its
end

-- Looks over some rows of `spent`. Returns how many went. Rows that say nothing any more go, of some buckets with each
-- call, one after the other. 0: fewer than half of these did, and to look for more is not worth it yet.
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
  Heads.call_with(gone, 'HDEL', K.spent)
  return 4 * #gone >= #rows and #gone or 0
end

-- What `state` is asked for from now on allows whatever one likes of rates until read_rates is called, in the same
-- function.
function Limits.put_off() call.unread_rates = {} end

-- Reads, in few calls, what `state` was asked for since `put_off`.
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
      state.due_us = state.due_us or due_us  -- what is said of hands comes after what is said of rates, as in `state`
    end
  end
end

-- What a bucket still allows: rate and slots; due_us: when it allows more. Also what a claim spends of it. Seven
-- fields: with a ninth Lua makes room for sixteen. Only what is used up has more.
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
    if call.early > 0 then  -- a job that is in a hand and has not come yet may be one of these
      state.slots, state.due_us = 0, now_us + Limits.AGAIN_MS * 1000
    else
      state.slots = math.max(0, rule.concurrency - redis.call('ZCARD', K.busy .. bucket))
      state.is_count = state.slots == 0 or nil
    end
  end
  return state
end

-- Whether a bucket lets one job of that cost start.
function Limits.has(state, cost) return state.slots >= 1 and cost and state.rate >= cost end

-- `allowed`: flat, state and cost of each constraint of a queue. Whether all allow one job more, which then counts in
-- this function.
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

-- How many jobs of that cost a bucket lets start.
function Limits.may(state, cost)
  if not cost then
    return 0
  end
  return cost > 0 and math.min(state.slots, math.floor(state.rate / cost)) or state.slots
end

-- How many jobs of a queue may start now, and which bucket stops more.
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
