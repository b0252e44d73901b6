-- Deaths of daemons at which a job was in flight. A job that met SUSPECT of them is a *suspect*: it runs alone.
--
--     deaths   hash  id → "deaths:deaths alone in flight"
--                    "@<sysid>" → "until_ms id": which job that daemon runs alone, and until when
local SUSPECT = 2  -- deaths from which on a job runs alone, so that no other job suffers from it
function starts.has_deaths() return is_here('deaths') end

-- Returns how many daemons died while they held that job, and how many of these held nothing else.
function Deaths.deaths_of(id)
  local all, alone = (call.has_deaths and redis.call('HGET', K.deaths, id) or ''):match('^(%d+):(%d+)$')
  return tonumber(all) or 0, tonumber(alone) or 0
end

-- Returns whether that job is a suspect.
function Deaths.is_suspect(id)
  if call.known_suspects then
    return call.known_suspects[id] == true
  end
  return call.has_deaths and (Deaths.deaths_of(id)) >= SUSPECT
end

-- Reads all rows, to answer for many ids. Returns how many jobs are suspects.
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

-- Returns whether the death of a daemon that held only this job counts as a death alone. For a suspect only if it was
-- to run alone: otherwise the daemon may have held jobs of other partitions, which this one does not see.
function Deaths.is_laid_to(sysid, id)
  local noted = (call.has_deaths and redis.call('HGET', K.deaths, '@' .. sysid) or ''):match('^%d+ (%S+)$')
  return noted == id or not Deaths.is_suspect(id)
end

-- Counts a death of a daemon that held that job. Returns how many such deaths met the job alone.
function Deaths.count_death(id, alone)
  local all, before = Deaths.deaths_of(id)
  before = before + (alone and 1 or 0)
  redis.call('HSET', K.deaths, id, (all + 1) .. ':' .. before)
  call.has_deaths = true
  return before
end

-- Notes that a daemon runs that job alone until then.
function Deaths.alone_until(sysid, id, until_ms)
  redis.call('HSET', K.deaths, '@' .. sysid, string.format('%.0f', until_ms) .. ' ' .. id)
end

-- Returns whether that daemon runs a suspect alone now.
function Deaths.runs_alone(sysid, now_ms, alone_ms)
  local until_ms, id = (call.has_deaths and redis.call('HGET', K.deaths, '@' .. sysid) or ''):match('^(%d+) (%S+)$')
  local left_ms = (tonumber(until_ms) or 0) - now_ms  -- above alone_ms the clock was set back
  return left_ms > 0 and left_ms <= alone_ms and redis.call('ZSCORE', held_key(sysid), id) ~= false
end
