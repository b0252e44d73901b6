-- Which life of the store this is. The life gets a new id if it has none (the store was never used, or was emptied),
-- and if the store was last looked at on another run of a server, or this server was a copy of another one since: a run
-- that comes back with data from elsewhere must not look as it did before.
-- ARGV     now_ms, id for a new life, run id of the server, whose history it went on from when it ceased to be a copy
--          ('': it is none, or was long ago), 1 when the caller never saw this store nor any other, which partition of
--          how many this is to be ("0/1")
-- Returns  id of this life, identity under which all came through the barrier, or nil; the last fence or epoch given,
--          or nil; what cursors are sealed with
-- Errors   JQD_PARTITION with the one it is, JQD_BAD_VALUE; none after the first write
-- Cost     O(1)
register('look', {'allow-oom'}, function()
  local _, now_us = clock(ARGV[1])
  local new_id, run_id, history, fresh, place = ARGV[2], ARGV[3], ARGV[4], ARGV[5] == '1', ARGV[6]

  expect_ours()
  local id, known_run, known_history, noted = unpack(redis.call('HMGET', K.life, 'id', 'run', 'history', 'partition'))
  if id and noted ~= place then
    fail('JQD_PARTITION', noted or '')
  end
  if not id or known_run ~= run_id or (history ~= '' and known_history ~= history) then
    Forgotten.begin_life(new_id, now_us)
  end
  if not id and redis.call('EXISTS', K.limits) == 1 then
    Version.note_version()
  end
  redis.call('HSET', K.life, 'run', run_id, 'history', history, 'partition', place)
  redis.call('HSETNX', K.life, 'seal', new_id)  -- outlives lives, as what was sealed with it does
  -- The note that all are through names an identity: under another identity it is void.
  if fresh and not id and redis.call('EXISTS', K.members) == 0 then
    redis.call('HSET', K.life, 'settled', run_id .. '.' .. new_id)
  end
  local life, settled, seal = unpack(redis.call('HMGET', K.life, 'id', 'settled', 'seal'))
  return {life, settled, redis.call('GET', K.fence), seal}
end)
