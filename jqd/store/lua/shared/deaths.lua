-- Daemons' deaths that a job was in flight at. A row of `deaths` is "deaths:deaths alone in flight"; the field
-- "@<sysid>" names a job that this daemon runs alone, and until when; "#<sysid>" how many were in its hand when it
-- began to be emptied, while some are left of them.
local SUSPECT = 2  -- deaths from which on a job runs alone: its neighbours must not suffer from it
function starts.has_deaths() return is_here('deaths') end

-- How many daemons died with that job in hand, and how many of these with that job alone.
function Deaths.deaths_of(id)
  local all, alone = (call.has_deaths and redis.call('HGET', K.deaths, id) or ''):match('^(%d+):(%d+)$')
  return tonumber(all) or 0, tonumber(alone) or 0
end

-- Whether that job is to run alone.
function Deaths.is_suspect(id)
  if call.known_suspects then
    return call.known_suspects[id] == true
  end
  return call.has_deaths and (Deaths.deaths_of(id)) >= SUSPECT
end

-- Reads all rows at once, for who asks of many ids. Returns how many jobs are suspects.
function Deaths.learn_suspects()
  local rows, count = call.has_deaths and redis.call('HGETALL', K.deaths) or {}, 0
  call.known_suspects = {}
  for at = 1, #rows, 2 do
    local all = rows[at + 1]:match('^(%d+):%d+$')
    if all and tonumber(all) >= SUSPECT then
      call.known_suspects[rows[at]], count = true, count + 1
    end
  end
  return count
end

-- Whether the death of a daemon with nothing else of ours in flight counts as a death alone. Of a suspect only if it
-- was run alone: a hand with company may have had jobs of other partitions, which this one does not see.
function Deaths.is_laid_to(sysid, id)
  local noted = (call.has_deaths and redis.call('HGET', K.deaths, '@' .. sysid) or ''):match('^%d+ (%S+)$')
  return noted == id or not Deaths.is_suspect(id)
end

-- Counts a death of a daemon with that job in hand. Returns how many met it alone.
function Deaths.count_death(id, alone)
  local all, before = Deaths.deaths_of(id)
  before = before + (alone and 1 or 0)
  redis.call('HSET', K.deaths, id, (all + 1) .. ':' .. before)
  call.has_deaths = true
  return before
end

-- That job runs alone in that hand, until then.
function Deaths.alone_until(sysid, id, until_ms)
  redis.call('HSET', K.deaths, '@' .. sysid, string.format('%.0f', until_ms) .. ' ' .. id)
end

-- Whether that hand is kept for a suspect.
function Deaths.runs_alone(sysid, now_ms, alone_ms)
  local until_ms, id = (call.has_deaths and redis.call('HGET', K.deaths, '@' .. sysid) or ''):match('^(%d+) (%S+)$')
  local left_ms = (tonumber(until_ms) or 0) - now_ms  -- more than it is ever alone: the clock was set back
  return left_ms > 0 and left_ms <= alone_ms and redis.call('ZSCORE', held_key(sysid), id) ~= false
end

-- How large that hand was when its emptying began, or 0.
function Deaths.hand_noted(sysid)
  return tonumber(call.has_deaths and redis.call('HGET', K.deaths, '#' .. sysid) or 0) or 0
end

-- The rest of a hand has a daemon again.
function Deaths.forget_hand(sysid)
  if call.has_deaths then
    redis.call('HDEL', K.deaths, '#' .. sysid)
  end
end

-- After a step that emptied a hand of `size` by `gone`: notes its size while some are left.
function Deaths.note_hand(sysid, size, gone)
  if size > gone then
    redis.call('HSET', K.deaths, '#' .. sysid, math.max(size, Deaths.hand_noted(sysid)))
    call.has_deaths = true
  else
    Deaths.forget_hand(sysid)
  end
end
