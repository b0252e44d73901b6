-- Disposes of jobs in flight without an outcome: ready at once (unget; unsent: no worker began them), ready later (retry), ended (archive); cancelled in any
-- case when that was asked for. The hold of a job that has not come yet is dropped: the job is ready when it comes.
-- ARGV     now_ms, sysid, epoch, how, delay_ms, then per job: id, fence
-- Returns  number of jobs that left the hand; those not held under that fence are left alone
-- Errors   JQD_STALE_OWNER, JQD_BAD_VALUE, JQD_ARGUMENT
-- Cost     O(jobs · log waiting), and the bytes
register('release_jobs', {'allow-oom'}, function()
  local now_ms, now_us = clock(ARGV[1])
  local sysid, epoch = ARGV[2], number(ARGV[3], 'epoch')
  local how, delay_ms = ARGV[4], number(ARGV[5], 'delay_ms')
  local FIRST, FIELDS = 6, 2

  Members.own(sysid, epoch)
  if how ~= 'unget' and how ~= 'unsent' and how ~= 'retry' and how ~= 'archive' then
    fail('JQD_ARGUMENT', 'how')
  end

  local released = {}
  for _, one in ipairs(About.held_so(sysid, FIRST, FIELDS)) do
    local id = one.id
    local here = redis.call('HEXISTS', K.jobs, id) == 1 and not Move.has_ended(id)
    if here and how == 'archive' then
      About.leave(id, one.hold)
      Move.end_cancelled(id, now_ms)
      Counts.moved(Move.header(redis.call('HGET', K.jobs, id)) or '', 'running', 'cancelled', id)
    elseif here and how == 'retry' and delay_ms > 0 and not redis.call('ZSCORE', K.tomb, 'c' .. id) then
      About.leave(id, one.hold)
      local jobtype, _, eligible_at_ms = Move.header(redis.call('HGET', K.jobs, id))
      redis.call('ZADD', K.later, math.max(now_ms + delay_ms, eligible_at_ms or 0), id)
      Counts.moved(jobtype or '', 'running', Counts.waits(id, eligible_at_ms or 0), id)
    else
      Back.give_back(id, one.hold, redis.call('HGET', K.jobs, id), now_ms, how == 'unsent')
    end
    released[#released + 1] = id
  end
  Back.finish(released, now_ms, now_us)
  return #released
end)
