-- Which life of the store this is. The life gets a new id if it has none (the store was never used, or was emptied),
-- and if the store was last looked at on another run of a server, or this server was a copy of another one since: a run
-- that comes back with data from elsewhere must not look as it did before. And if it is an older one than the caller
-- knew, or the caller, which knows none, has to tell of later claims than it ever gave: old keys were put back.
-- ARGV     now_ms, id for a new life, run id of the server, whose history it went on from when it ceased to be a copy
--          ('': it is none, or was long ago), 1 when the caller never saw this store nor any other, which partition of
--          how many this is to be ("0/1"); the highest fence that a caller which knows no life has to tell of, or 0;
--          `high` of the life that the caller knew last, or 0
-- Returns  id of this life, identity under which all came through the barrier, or nil; the last fence or epoch given,
--          or nil; what cursors are sealed with; `high` of this life: all fences given in it are above
-- Errors   JQD_PARTITION with the one it is, JQD_BAD_VALUE; none after the first write
-- Cost     O(1)
register('look', {'allow-oom'}, function()
  local _, now_us = clock(ARGV[1])
  local new_id, run_id, history, fresh, place = ARGV[2], ARGV[3], ARGV[4], ARGV[5] == '1', ARGV[6]
  local told, before = number(ARGV[7], 'told'), number(ARGV[8], 'before')

  expect_ours()
  local id, known_run, known_history, noted = unpack(redis.call('HMGET', K.life, 'id', 'run', 'history', 'partition'))
  if id and noted ~= place then
    fail('JQD_PARTITION', noted or '')
  end
  local is_other = not id or known_run ~= run_id or (history ~= '' and known_history ~= history)
  if is_other or Forgotten.went_back(told, before) then
    Forgotten.begin_life(new_id, now_us, math.max(told, before))
  else
    Forgotten.tell(math.max(told, before))
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
  local life, settled, seal, high = unpack(redis.call('HMGET', K.life, 'id', 'settled', 'seal', 'high'))
  return {life, settled, redis.call('GET', K.fence), seal, high}
end)
