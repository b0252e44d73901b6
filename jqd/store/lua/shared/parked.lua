-- Parked queues: their jobs may not start, for a bucket is used up. Each waits at one *place*, "<version>\30<bucket>",
-- with one row whatever waits in it, until the bucket is looked at again. When the matchers change, the places of other
-- versions are emptied: a queue that is still limited comes to another place.

-- Takes a job that lost its holder in this call out of `busy` now: `left` would do so when it counts anew.
local function take_out(id)
  for at = 1, #call.freed, 2 do
    if call.freed[at] == id then
      for _, item in ipairs(Limits.items(call.freed[at + 1])) do
        redis.call('ZREM', K.busy .. item.bucket, id)
      end
      call.freed[at] = ''  -- stands for no job
    end
  end
end

-- Counts a job that gets a holder otherwise than by a claim. Returns its queue if a limit counts it, or nil.
function Parked.take_hold(queue, id, fence)
  take_out(id)
  if not Queues.is_keyed(queue) then
    return nil
  end
  local counts
  for _, item in ipairs(Limits.items(queue)) do
    local rule = Limits.rule(item.name)
    if not rule or rule.concurrency > 0 then  -- an emptied store may get the job before the rule
      Queues.begin_keyed()  -- else nothing is done when the job leaves its holder
      redis.call('ZADD', K.busy .. item.bucket, digits(fence), id)
      counts = queue
    end
  end
  return counts
end

local function place_of(version, bucket) return version .. '\30' .. bucket end

-- Notes when to look at a place again.
local function look_later(place, bucket, now_us, ...)
  local state = call.bucket_states[bucket]
  local due_ms = Limits.EVER_MS
  if state and state.is_count then  -- a job that leaves its holder brings the look forward
    due_ms = math.floor(now_us / 1000) + Limits.RECOUNT_MS
  elseif state and state.due_us then
    due_ms = math.min(due_ms, math.ceil(state.due_us / 1000))
  end
  local words = {...}
  words[#words + 1], words[#words + 2] = due_ms, place
  redis.call('ZADD', K.due, unpack(words))
end

-- Parks a queue until a bucket allows more. `heads`: its first jobs, flat; their rows go. The caller drops others.
function Parked.park(queue, bucket, heads, now_us)
  for at = 1, #heads, 2 do
    Index.note_gone(heads[at], heads[at + 1], queue)
  end
  if #heads > 0 then
    local place = place_of(Limits.items(queue).version, bucket)
    redis.call('HSET', K.tied, queue, heads[2] .. ' ' .. place)
    redis.call('ZADD', K.throttled .. place, heads[1], Queues.head_row(heads[2], queue))
    look_later(place, bucket, now_us, 'LT')
  else
    redis.call('HDEL', K.tied, queue)
  end
end

-- Lets a queue go on: it gets its rows in the indexes back.
function Parked.let_go(queue)
  local known, place = Queues.parked_at(queue)
  if not known then
    return
  end
  redis.call('HDEL', K.tied, queue)
  redis.call('ZREM', K.throttled .. place, Queues.head_row(known, queue))
  local heads = Queues.heads(queue, Limits.PRIORITIES)
  call.let_go_left = call.let_go_left - #heads / 2 - 1
  for at = 1, #heads, 2 do
    Index.came(queue, heads[at], true, nil, heads[at + 1])
  end
end

-- Looks at a place, and lets go as many queues as its bucket allows now. Returns how many.
function Parked.look_at(place, version, now_us, recount)
  local place_version, bucket = place:match('^([^\30]*)\30(.*)$')
  call.bucket_states[bucket] = nil
  if recount then
    recount(bucket)
  end
  local name = bucket:match('^[^\29]*')
  local state, let_go_queues = Limits.state(bucket, name, nil, now_us), 0
  local free = place_version ~= version and Limits.MANY or math.min(state.slots, state.rate)
  local known_due, rule = not recount and tonumber(redis.call('ZSCORE', K.due, place) or nil), Limits.rule(name)
  local most = free >= 1 and math.min(Limits.MANY, math.max(Limits.FEW, math.floor(free))) or 0
  for _, row in ipairs(most > 0 and redis.call('ZRANGE', K.throttled .. place, 0, most - 1) or {}) do
    if call.let_go_left >= 1 then
      Parked.let_go(row:match('^[^:]*:(.*)$'))
      let_go_queues = let_go_queues + 1
    end
  end
  redis.call('ZREM', K.due, place)
  if redis.call('EXISTS', K.throttled .. place) == 1 then
    if free >= 1 then
      redis.call('ZADD', K.due, math.floor(now_us / 1000) + Limits.AGAIN_MS, place)
    else
      look_later(place, bucket, now_us)
    end
  end
  if known_due and known_due < Limits.EVER_MS and rule and rule.concurrency > 0 then
    redis.call('ZADD', K.due, 'LT', known_due, place)  -- an early look does not put off the next count
  end
  return let_go_queues
end

-- Counts jobs without a holder (call.freed) no more, and looks at the places of their buckets.
function Parked.left(now_us)
  local freed, order = {}, {}
  for at = 1, #call.freed, 2 do
    local id, queue = call.freed[at], call.freed[at + 1]
    for _, item in ipairs(Limits.items(queue)) do
      redis.call('ZREM', K.busy .. item.bucket, id)
      if not freed[item.bucket] then
        freed[item.bucket], order[#order + 1] = true, item.bucket
      end
    end
  end
  call.freed = {}
  local version = #order > 0 and redis.call('HGET', K.life, 'version') or ''
  for _, bucket in ipairs(order) do
    local place = place_of(version, bucket)
    if redis.call('EXISTS', K.throttled .. place) == 1 then
      Parked.look_at(place, version, now_us)
    end
  end
end
