-- Emptying a hand.
-- Puts jobs back where they wait: those that were claimed under fences lower than `below`, at most `limit`. Returns
-- how many, and how many left the hand. Each job is added before it is removed; the hold of a job that has not come yet
-- is dropped. crash_limit 0: no daemon died; else this counts as a death of each job, and a job that was alone in
-- flight at so many goes to the dead set. A hand counts as large as it was when its emptying began: the last job of
-- many, left to a step of its own, was not alone.
function Giveback.give_back(sysid, below, limit, bytes_max, now_ms, crash_limit)
  local held = held_key(sysid)
  local size = redis.call('ZCARD', held)
  local alone = math.max(size, Deaths.hand_noted(sysid)) == 1
  local ids = redis.call('ZRANGE', held, '-inf', '(' .. below, 'BYSCORE', 'LIMIT', 0, limit)
  local rows, holds = Move.rows_within(ids, bytes_max), About.look(ids)
  for position, row in ipairs(rows) do
    local id, jobtype = ids[position], row and Move.header(row)
    local hold = holds[id] or About.of(0, sysid)  -- somebody deleted its record
    local crashes = crash_limit > 0 and row and not Move.has_ended(id)
      and Deaths.count_death(id, alone and Deaths.is_laid_to(sysid, id)) or 0
    if crashes > 0 and crashes >= crash_limit and not redis.call('ZSCORE', K.tomb, 'c' .. id) then
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
  Deaths.note_hand(sysid, size, #rows)
  return #rows
end

-- A daemon leaves: burns its epoch, empties its hand in steps, then frees its seat.
function Giveback.leave(sysid, counter, limit, bytes_max, now_ms, crash_limit)
  Members.set_member(sysid, counter, 0, '')
  local moved = Giveback.give_back(sysid, '+inf', limit, bytes_max, now_ms, crash_limit)
  if moved == 0 then
    if redis.call('ZCARD', K.asked .. sysid) > 0 then  -- which refuses what somebody else wrote there
      redis.call('UNLINK', K.asked .. sysid)
    end
    Ageing.say_period(sysid, 0)  -- nobody's period outlives its daemon
    redis.call('HDEL', K.members, sysid)
  end
  return moved
end
