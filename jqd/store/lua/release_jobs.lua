-- Gives held jobs back untried, without an outcome: they are ready again, or cancelled if that was noted. A job that
-- has not come yet loses its record.
-- ARGV     now_ms, sysid and epoch of the daemon that holds them, or * (workers) and the identity of the store; how;
--          then per job: id, fence, and to requeue: header of its row when it was claimed, new header. How: unget;
--          unsent: no worker began them; requeue: nor any of these, and they go into other queues, for they were found
--          limited
-- Returns  ids that were given back; those not held so under that fence are left alone
-- Errors   JQD_STALE_OWNER or JQD_STORE_CHANGED, JQD_BAD_VALUE; none after the first write
-- Cost     O(jobs · log waiting), and the bytes
register('release_jobs', {'allow-oom'}, function()
  local now_ms, now_us = clock(ARGV[1])
  local sysid, owner, how = ARGV[2], ARGV[3], ARGV[4]
  local FIRST, FIELDS = 5, ({unget = 2, unsent = 2, requeue = 4})[how]

  if sysid == About.WORKERS then
    Life.expect_life(owner)
  else
    Members.own(sysid, tonumber(owner))
  end
  local claims, released, fences = About.held_so(sysid, FIRST, FIELDS), {}, {}

  -- The argument stays. A content that came meanwhile has its own queue.
  local function requeued(id, row, before, after)
    local good, behind = pcall(cmsgpack.unpack_limit, row or '', 1, 0)
    if row and good and behind > 0 and row:sub(1, behind) == before then
      row = after .. row:sub(behind + 1)
      redis.call('HSET', K.jobs, id, row)
    end
    return row
  end

  for at, claim in ipairs(claims) do
    local row = redis.call('HGET', K.jobs, claim.id)
    row = how == 'requeue' and requeued(claim.id, row, ARGV[claim.at + 2], ARGV[claim.at + 3]) or row
    Back.give_back(claim.id, claim.hold, row, now_ms, how ~= 'unget')
    released[at], fences[claim.hold.fence] = claim.id, true
  end
  Back.finish(released, now_ms, now_us)
  for fence in pairs(sysid == About.WORKERS and fences or {}) do
    Leases.tidy_lease(fence, now_us)
  end
  return released
end)
