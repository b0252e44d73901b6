-- Puts jobs in hand into other queues: they were found to be limited. Their headers are exchanged, the arguments stay.
-- ARGV     now_ms, sysid, epoch, then per job: id, fence, header of its row as it was claimed, new header
-- Returns  number of jobs that left the hand; those not held under that fence are left alone
-- Errors   JQD_STALE_OWNER, JQD_WRONG_TYPE, JQD_BAD_VALUE, JQD_ARGUMENT
-- Cost     O(jobs · log waiting), and the bytes
register('requeue', {'allow-oom'}, function()
  local now_ms, now_us = clock(ARGV[1])
  local sysid, epoch = ARGV[2], number(ARGV[3], 'epoch')
  local FIRST, FIELDS = 4, 4

  local held = held_key(sysid)
  expect('jobs', 'types', 'heads', 'ended', 'dead', 'outcome', 'tomb', 'members', 'early', 'later', 'tries', 'asked', 'leases', 'keyed', 'parked', 'generation')
  expect_kind(held, 'held')
  Members.own(sysid, epoch)
  if (#ARGV - FIRST + 1) % FIELDS ~= 0 then
    fail('JQD_ARGUMENT', 'jobs')
  end

  for at = FIRST, #ARGV, FIELDS do
    number(ARGV[at + 1], 'fence')
    local queue = Move.header(ARGV[at + 3]) or fail('JQD_ARGUMENT', 'header')
    expect_kind(ready_key(queue), 'ready')
    expect_kind(Queues.heads_key(queue), 'queues')
    expect_kind(Queues.loose_key(queue), 'loose')
  end
  local left = {}
  for at = FIRST, #ARGV, FIELDS do
    local id, fence, before, after = ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2], ARGV[at + 3]
    if tonumber(redis.call('ZSCORE', held, id) or nil) == fence then
      local row = redis.call('HGET', K.jobs, id)
      local good, behind = pcall(cmsgpack.unpack_limit, row or '', 1, 0)
      -- Another content that came meanwhile has a queue of its own.
      if row and good and behind > 0 and row:sub(1, behind) == before then
        row = after .. row:sub(behind + 1)
        redis.call('HSET', K.jobs, id, row)
      end
      Back.return_job(id, row, now_ms, 'running', fence)
      redis.call('ZREM', held, id)
      Early.drop_early(id)
      redis.call('HDEL', K.asked, id)
      left[#left + 1] = id
    end
  end
  Parked.left(left, now_us)
  Counts.write_counts(now_ms)
  return #left
end)
