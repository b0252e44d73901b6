-- Puts the jobs of a daemon that left or died back where they wait.

-- Takes up to `limit` jobs from a holder, of claims below the fence `below`; returns how many. Each job is added to its
-- new place before it is removed; a job that has not come yet just loses its record. `crash_limit`: not 0: the daemon
-- died, which is a death for each job, and a job that was alone in flight at so many is put among the dead. A job
-- counts as alone only if it was claimed above the fence `above`, the epoch that died: others are left of earlier
-- epochs, which may have held more.
function Giveback.give_back(sysid, below, limit, bytes_max, now_ms, crash_limit, above)
  local held = held_key(sysid)
  local alone = crash_limit > 0 and redis.call('ZCARD', held) == 1
    and redis.call('ZCOUNT', held, '(' .. above, '+inf') == 1
  local ids = redis.call('ZRANGE', held, '-inf', '(' .. below, 'BYSCORE', 'LIMIT', 0, limit)
  local rows, holds = Move.rows_within(ids, bytes_max), About.look(ids)
  for position, row in ipairs(rows) do
    local id, jobtype = ids[position], row and Move.header(row)
    local hold = holds[id] or About.of(0, sysid)  -- its record was deleted by somebody
    local crashes = crash_limit > 0 and row and not Move.has_ended(id)
      and Deaths.count_death(id, alone and Deaths.is_laid_to(sysid, id)) or 0
    if crashes > 0 and crashes >= crash_limit and not redis.call('ZSCORE', K.tombstones, 'c' .. id) then
      redis.call('ZADD', K.dead, now_ms, id)
      redis.call('HSET', K.outcome, id, Move.CRASHED .. crashes)
      Counts.moved(jobtype or '', 'running', 'failed', id)
      Counts.died(jobtype or '')
      About.leave(id, hold)
    else
      Back.give_back(id, hold, row, now_ms)
    end
  end
  Back.finish({unpack(ids, 1, #rows)}, now_ms, select(2, clock(ARGV[1])))
  if call.has_deaths then
    redis.call('HDEL', K.deaths, '@' .. sysid)
  end
  return #rows
end

-- Revokes a daemon's epoch, gives its jobs back in steps, then ends its membership. Returns how many jobs moved.
function Giveback.leave(sysid, counter, limit, bytes_max, now_ms, crash_limit, above)
  Members.set_member(sysid, counter, 0, '')
  local moved = Giveback.give_back(sysid, '+inf', limit, bytes_max, now_ms, crash_limit, above)
  if moved == 0 then
    if redis.call('ZCARD', K.asked .. sysid) > 0 then  -- fails if the key has another type
      redis.call('UNLINK', K.asked .. sysid)
    end
    Ageing.say_period(sysid, 0)  -- drops its period
    redis.call('HDEL', K.members, sysid)
  end
  return moved
end
