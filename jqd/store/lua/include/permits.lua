-- What this partition may start of what is counted for all of them (docs/adr/0048). Needs keys, fail, now.
-- A bucket is counted in one partition, its *home*. Of a rate that spends what is asked for, and whoever asked has a moment to use it. Of a concurrency
-- it grants *slots*, which stay where they are until another partition wants them.
--
--     permits  hash  "h<bucket>" → "era asked_us p:granted:returned:made …", at its home: of each partition how many slots it was granted in this era by the
--                    row that it `made`, and how many came back. Both only grow; the difference is what that partition may have at most
--                    "p<bucket>" → "era granted returned most wanted_us made", anywhere: what this partition heard of that, and what it gave back. The difference
--                    is how many may be in hands here. `most`: the concurrency as it was then; wanted_us: until then what is free is kept for others; `made`: a fence,
--                    the name of this row: what was granted to an earlier one came back with it, and comes too late here
--
-- Gives permits.many(): whether there are several partitions; permits.number, permits.count, after that; permits.home(bucket); permits.high(): rows that are not above it
-- are of an earlier life, and when (µs) this one began; permits.row(bucket) → era, granted, returned, most, wanted_us, made in a table, or false; permits.rate_of(state, rule, bucket, now_us) and
-- permits.slots_of(state, rule, bucket, now_us): as `limits.state` wants it; permits.may_ask(state); permits.used(bucket, count): of a rate; permits.tidy(bucket, is_idle, now_us).
-- permits.mode: 'ask' (a claim that can be told more), 'give' (it is to do with what there is), 'look' (no claim); permits.is_due: the bucket is looked at because it is time.
local permits = {mode = 'look', is_due = false, rows = {}, rates = {}, slots = {}}
permits.AHEAD_US = 2000000  -- what is spent of a rate may be used so much later, at most
permits.AGAIN_US = 100000  -- until others are asked again whether they have slots left
permits.KEPT_MS = 60000  -- what nobody asked for so long is forgotten

function permits.many()
  if not permits.count then
    local number, count = (redis.call('HGET', K.life, 'partition') or ''):match('^(%d+)/(%d+)$')
    permits.number, permits.count = tonumber(number) or 0, tonumber(count) or 1
  end
  return permits.count > 1
end

-- jqd/domain/queue_name.py does the same.
function permits.home(bucket)
  local sum = 0
  for at = 1, #bucket do
    sum = (sum * 31 + bucket:byte(at)) % 2147483648
  end
  return permits.many() and sum % permits.count or 0
end

function permits.high()
  if not permits.high_us then
    local high, began = unpack(redis.call('HMGET', K.life, 'high', 'began'))
    permits.high_us, permits.began_us = tonumber(high or nil) or 0, tonumber(began or nil) or 0
  end
  return permits.high_us, permits.began_us
end

function permits.row(bucket)
  if permits.rows[bucket] == nil then
    local row = redis.call('HGET', K.permits, 'p' .. bucket) or ''
    local era, granted, returned, most, wanted_us, made = row:match('^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
    permits.rows[bucket] = made and tonumber(made) > permits.high() and {
      era = tonumber(era), granted = tonumber(granted), returned = tonumber(returned), most = tonumber(most),
      wanted_us = tonumber(wanted_us), made = tonumber(made),
    } or false
  end
  return permits.rows[bucket]
end

function permits.rate_of(state, rule, bucket, now_us)
  local told = permits.rates[bucket]
  if told and now_us <= told.until_us then
    state.rate, state.due_us, state.rate_open = told.count, now_us + told.wait_us, told.more
  elseif permits.mode == 'give' then
    state.rate, state.rate_open = 0, true
  else
    state.rate, state.asks_rate, state.window_us = rule.limit + rule.burst, rule.limit + rule.burst, rule.window_us
  end
end

function permits.slots_of(state, rule, bucket, now_us)
  local busy, row, told = redis.call('ZCARD', K.busy .. bucket), permits.row(bucket), permits.slots[bucket]
  local room = math.max(0, rule.concurrency - busy)
  local free = row and math.max(0, math.min(room, row.granted - row.returned - busy)) or 0
  if not told and row and (row.most ~= rule.concurrency or row.wanted_us > now_us) then
    free = 0
  end
  if room == 0 then
    state.slots, state.is_count = 0, true
    return
  elseif not told and (permits.mode == 'ask' or permits.is_due) then
    state.slots, state.asks_slots, state.free = room, room, free
    return
  end
  state.slots = free
  if free == 0 then
    state.due_us, state.slots_open = now_us + (told and told.wait_us or permits.AGAIN_US), told and not told.denied or not told and permits.mode == 'give'
  end
end

-- Whether others could let go on what this state stops, and were not asked yet.
function permits.may_ask(state)
  return state.slots < 1 and state.slots_open or state.slots >= 1 and state.rate_open
end

function permits.used(bucket, count)
  local told = permits.rates[bucket]
  if told then
    told.count = math.max(0, told.count - count)
  end
end

-- `is_idle`: it was looked at because it was time, and nothing waited for it. Whoever needs it again asks all partitions anew.
function permits.tidy(bucket, is_idle, now_us)
  local row, field = permits.row(bucket), redis.call('HGET', K.permits, 'h' .. bucket)
  if row and is_idle and redis.call('EXISTS', K.busy .. bucket, K.aside .. bucket) == 0 then
    redis.call('HDEL', K.permits, 'p' .. bucket)
    permits.rows[bucket], row = false, false
  end
  if field and tonumber(field:match('^%d+ (%d+)') or '0') + permits.KEPT_MS * 1000 <= now_us then
    redis.call('HDEL', K.permits, 'h' .. bucket)
    field = false
  end
  if row or field then
    redis.call('ZADD', K.due, 'LT', math.floor(now_us / 1000) + permits.KEPT_MS, bucket)
  end
end
