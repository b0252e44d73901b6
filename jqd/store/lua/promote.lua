-- Makes jobs ready whose date has come, the longest due first; ends those that did not begin in time; lets queues go on
-- whose limits allow it. If the server's clock was set back, retries and limits wait as much less.
-- ARGV     now_ms, limit, bytes_max
-- Returns  number moved; ms until the next is due (0: now), nil: none has a date; jobtype, number …: jobs that the
--          store itself ended since the last call; 1 if some jobtype has ready jobs, even if constraints keep them
--          waiting
-- Errors   none
-- Cost     O(limit · log waiting), and the bytes; after the clock was set back until all retries were looked at,
--          RETRIES · log later
register('promote', {'allow-oom'}, function()
  local now_ms, now_us = clock(ARGV[1])
  local limit, bytes_max = tonumber(ARGV[2]), tonumber(ARGV[3])

  local RETRIES = 5000  -- whose dates are mended in one call, the next ones first: some 10 ms
  local BACK_MS, SEEN_MS = 1000, 500  -- a slewed clock goes back by less; how often the time is noted
  local function note_back(back_ms)
    redis.call('HSET', K.life, 'again', '1', 'back', digits(back_ms) .. ' ' .. digits(now_ms))
    if (tonumber(redis.call('HGET', K.life, 'began') or nil) or 0) > now_us then
      redis.call('HSET', K.life, 'began', digits(now_us))
    end
  end

  -- Moves retries to earlier dates after the clock was set back. Returns whether there are more.
  local function mend_dates(back_ms, from)
    local ids = redis.call('ZRANGE', K.later, '(' .. from, '+inf', 'BYSCORE', 'LIMIT', 0, RETRIES, 'WITHSCORES')
    for at = 1, #ids, 2 do
      local row = Counts.have_failed(redis.call('HGET', K.tries, ids[at])) and redis.call('HGET', K.jobs, ids[at])
      local _, _, date_ms = Move.header(row or '')
      local due_ms = tonumber(ids[at + 1])
      if date_ms and due_ms > date_ms then  -- a retry's date, not its pusher's
        redis.call('ZADD', K.later, math.max(date_ms, due_ms - back_ms), ids[at])
      end
    end
    if #ids < 2 * RETRIES then
      redis.call('HDEL', K.life, 'back')
      return false
    end
    redis.call('HSET', K.life, 'back', back_ms .. ' ' .. ids[#ids])
    return true
  end

  local ids = redis.call('ZRANGE', K.later, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, limit)
  local rows = Move.rows_within(ids, bytes_max)
  local tries = #ids > 0 and redis.call('HMGET', K.tries, unpack(ids)) or {}
  local ready = {}
  for position, row in ipairs(rows) do
    -- A retry may be due before the date of a content that came while it ran.
    local before = Counts.have_failed(tries[position]) and 'retrying' or 'scheduled'
    if not Back.return_job(ids[position], row, now_ms, before) then
      ready[#ready + 1] = ids[position]
    end
  end
  Index.write()
  Index.call_with(ready, 'ZREM', K.later)
  local expired = Expire.expire_due(now_ms, limit)
  local seen_ms = tonumber(redis.call('HGET', K.life, 'seen') or nil) or 0
  if seen_ms - now_ms > BACK_MS then
    note_back(seen_ms - now_ms)
  end
  local back_ms, from = (redis.call('HGET', K.life, 'back') or ''):match('^(%d+) (%d+)$')
  local is_behind = back_ms and mend_dates(back_ms, from)
  if math.abs(seen_ms - now_ms) >= SEEN_MS then
    redis.call('HSET', K.life, 'seen', digits(now_ms))
  end
  Counts.write_counts(now_ms)
  local next_due = is_behind and now_ms or tonumber(redis.call('ZRANGE', K.later, 0, 0, 'WITHSCORES')[2])

  local BUCKETS = 100  -- counted in one call

  -- Drops jobs from `busy` that nobody holds: somebody failed to say so. Of many some each time, in turns.
  local function recount(bucket)
    local key, MOST = K.busy .. bucket, Limits.MANY * 10
    local turn, turns = math.floor(now_ms / Limits.RECOUNT_MS), math.ceil(redis.call('ZCARD', key) / MOST)
    local first = turns > 0 and turn % turns * MOST or 0
    local ids = redis.call('ZRANGE', key, first, first + MOST - 1)
    local holds = About.look(ids)
    local function is_of(queue)
      for _, item in ipairs(Limits.items(queue or '')) do
        if item.bucket == bucket then
          return true
        end
      end
      return false
    end
    for _, id in ipairs(ids) do
      if not (holds[id] and is_of(holds[id].queue)) then
        redis.call('ZREM', key, id)
      end
    end
  end

  -- Lets queues go on. Returns how many.
  local function look_at_all(key, buckets)
    local version, gone = #buckets > 0 and redis.call('HGET', K.life, 'version') or '', 0
    for _, bucket in ipairs(buckets) do
      gone = gone + Parked.look_at(bucket, version, now_us, recount)
      if key == K.again then
        redis.call('ZREM', key, bucket)
      end
    end
    return gone
  end

  local waits = call.has_keyed and redis.call('ZRANGE', K.due, 0, 0, 'WITHSCORES')[2]
  local gone = 0
  if call.has_keyed and redis.call('EXISTS', K.again) == 1 then
    gone = look_at_all(K.again, redis.call('ZRANGE', K.again, 0, BUCKETS - 1))
    waits = now_ms
  elseif call.has_keyed and redis.call('HDEL', K.life, 'again') == 1 and waits then
    redis.call('RENAME', K.due, K.again)  -- another constraint changed meanwhile
    waits = now_ms
  elseif waits and tonumber(waits) <= now_ms then
    gone = look_at_all(K.due, redis.call('ZRANGE', K.due, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, BUCKETS))
    waits = redis.call('ZRANGE', K.due, 0, 0, 'WITHSCORES')[2]
  end
  Index.write()
  if waits then
    next_due = math.min(next_due or math.huge, tonumber(waits))
  end
  return {#rows + gone + expired, next_due and math.max(0, math.ceil(next_due - now_ms)) or false, Counts.take_died(),
    redis.call('EXISTS', K.types)}
end)
