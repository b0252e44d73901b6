-- Puts jobs in flight into other queues: they were found to be limited. Their headers are exchanged, the arguments stay.
-- ARGV     now_ms, sysid, epoch, then per job: id, fence, header of its row as it was claimed, new header
-- Returns  number of jobs that left the hand; those not held under that fence are left alone
-- Errors   JQD_STALE_OWNER, JQD_BAD_VALUE, JQD_ARGUMENT
-- Cost     O(jobs · log waiting), and the bytes
register('requeue', {'allow-oom'}, function()
  local now_ms, now_us = clock(ARGV[1])
  local sysid, epoch = ARGV[2], number(ARGV[3], 'epoch')
  local FIRST, FIELDS = 4, 4

  Members.own(sysid, epoch)

  local claims, left = About.held_so(sysid, FIRST, FIELDS), {}
  for at = FIRST, #ARGV, FIELDS do
    local _ = Move.header(ARGV[at + 3]) or fail('JQD_ARGUMENT', 'header')
  end
  for _, one in ipairs(claims) do
    local id, before, after = one.id, ARGV[one.at + 2], ARGV[one.at + 3]
    local row = redis.call('HGET', K.jobs, id)
    local good, behind = pcall(cmsgpack.unpack_limit, row or '', 1, 0)
    -- Another content that came meanwhile has a queue of its own.
    if row and good and behind > 0 and row:sub(1, behind) == before then
      row = after .. row:sub(behind + 1)
      redis.call('HSET', K.jobs, id, row)
    end
    Back.give_back(id, one.hold, row, now_ms, true)
    left[#left + 1] = id
  end
  Back.finish(left, now_ms, now_us)
  return #left
end)
