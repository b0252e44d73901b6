#!lua
-- Counts the jobs of a store that an older jqd wrote, some with each call; looks whether the counts add up where all are counted.
-- Jobs that move meanwhile count if they were met already (include/counts.lua).
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, limit, bytes_max of rows, recount_ms: counts that do not add up are made anew at most so often
-- Returns  1 when there is more to do; number of jobs counted by this call; 1 when all are counted anew because the counts did not add up
-- Errors   JQD_WRONG_TYPE, JQD_BAD_VALUE, JQD_ARGUMENT
-- Cost     O(limit · (members + log jobs)), and the bytes
--@include fail keys now counts order queues heads holder move stands
local now_ms = clock(ARGV[1])
local limit, bytes_max, recount_ms = number(ARGV[2], 'limit'), number(ARGV[3], 'bytes_max'), number(ARGV[4], 'recount_ms')
local AT_ONCE = 8  -- rows the server looks for; each may have a megabyte

expect('jobs', 'later', 'tries', 'ended', 'dead', 'outcome', 'early', 'life', 'counts', 'counting')
expect_held_keys()
local run = redis.call('HGET', K.life, 'run') or ''

-- What the places hold more than was counted: all jobs, those that ended, those in a hand. Something else than 0 in each is normal only
-- where somebody deleted keys by hand; it is noted, so that the counts are not made anew for ever.
local function excess()
  local row, n = redis.call('HGET', K.counts, 'all') or '', {}
  for text in row:gmatch('%d+') do
    n[#n + 1] = tonumber(text)
  end
  local function of(what) return n[NUMBERS[what]] or 0 end
  local over = of('succeeded') + of('failed') + of('cancelled')
  local all = of('waiting') + of('scheduled') + of('running') + of('retrying') + over
  local held = 0 - redis.call('HLEN', K.early)  -- of 0 the minus alone would make a -0, which reads otherwise
  for _, sysid in ipairs(sysids) do
    held = held + redis.call('ZCARD', held_key(sysid))
  end
  local ended = redis.call('ZCARD', K.ended) + redis.call('ZCARD', K.dead)
  return (redis.call('HLEN', K.jobs) - all) .. ' ' .. (ended - over) .. ' ' .. (held - of('running'))
end

local function begin()
  redis.call('UNLINK', K.counts, K.counting)
  redis.call('HSET', K.counts, 'state', 'counting ' .. run .. ' 0')
  return '0'
end

-- The place where the server goes on, if it is the one that gave it.
local cursor, anew, known_state, is_exact = nil, 0, counts_state()
if known_state == 'exact' then
  local noted, at_ms = unpack(redis.call('HMGET', K.counts, 'excess', 'counted_at'))
  if excess() == (noted or '0 0 0') or now_ms - (tonumber(at_ms or nil) or 0) < recount_ms then
    return {0, 0, 0}
  end
  anew = 1
elseif is_exact then
  redis.call('UNLINK', K.counts, K.counting)
  redis.call('HSET', K.counts, 'state', 'exact', 'counted_at', digits(now_ms))
  return {0, 0, 0}
else
  local known, place = (known_state or ''):match('^counting (.*) (%d+)$')
  cursor = known == run and place or nil
end
cursor = cursor or begin()

local met, bytes, seen = 0, 0, {}
repeat
  local next_cursor, found = unpack(redis.call('HSCAN', K.jobs, cursor, 'COUNT', AT_ONCE))
  for at = 1, #found, 2 do
    local id = found[at]
    met, bytes = met + 1, bytes + #found[at + 1]
    if not seen[id] and redis.call('HEXISTS', K.counting, id) == 0 then
      local jobtype, how = how_stands(id)
      moved(jobtype, nil, how, id)
      seen[id] = true
    end
  end
  cursor = next_cursor
until cursor == '0' or met >= limit or bytes >= bytes_max
write_counts(now_ms, true)
if cursor ~= '0' then
  redis.call('HSET', K.counts, 'state', 'counting ' .. run .. ' ' .. cursor)
  return {1, met, anew}
end
redis.call('UNLINK', K.counting)
redis.call('HSET', K.counts, 'state', 'exact', 'excess', excess(), 'counted_at', digits(now_ms))
return {0, met, anew}
