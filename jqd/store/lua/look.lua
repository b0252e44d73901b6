-- Returns which life of the store this is, and begins a new one if data may be lost:
--
--     * it has no id: the store was never used, or was emptied
--     * another run of a server had it at the last look, or this server was a copy since: its data may be another's
--     * it is older than the life that the caller knows, or the caller, which knows none, reports later claims than it
--       ever gave: old keys were put back
--
-- ARGV     now_ms, id for a new life, run id of the server, whose history it continued when it ceased to be a copy ('':
--          none, or long ago), 1: the caller knows no store, partition and number of all ("0/1"); the highest fence
--          that a caller reports which knows no life, or 0; `high` of the life that the caller knew last, or 0
-- Returns  id of this life, identity under which all came through recovery, or nil; the last fence or epoch given, or
--          nil; key of cursors; `high` of this life: all its fences are above
-- Errors   JQD_PARTITION with the one it is, JQD_WRONG_TYPE, JQD_BAD_VALUE; none after the first write
-- Cost     O(1)
register('look', {'allow-oom'}, function()
  local _, now_us = clock(ARGV[1])
  local new_id, run_id, history, fresh, place = ARGV[2], ARGV[3], ARGV[4], ARGV[5] == '1', ARGV[6]
  local reported, before = tonumber(ARGV[7]), tonumber(ARGV[8])

  -- Keys that end in a name of a job, a queue … are not known here. A call that meets one of another type is refused.
  -- What it wrote stays: the same call, when that key is gone, ends as it should (docs/build/STORE.md).
  for name, kind in pairs(KINDS) do
    local its = STEMS[name] and 'none' or redis.call('TYPE', K[name])['ok']
    if its ~= 'none' and its ~= kind then
      fail('JQD_WRONG_TYPE', name)
    end
  end
  local id, known_run, known_history, noted = unpack(redis.call('HMGET', K.life, 'id', 'run', 'history', 'partition'))
  if id and noted ~= place then
    fail('JQD_PARTITION', noted or '')
  end
  local is_other = not id or known_run ~= run_id or (history ~= '' and known_history ~= history)
  if is_other or Forgotten.went_back(reported, before) then
    Forgotten.begin_life(new_id, now_us, math.max(reported, before))
  else
    Forgotten.tell(math.max(reported, before))
  end
  if not id and redis.call('EXISTS', K.limits) == 1 then
    Version.note_version()
  end
  redis.call('HSET', K.life, 'run', run_id, 'history', history, 'partition', place)
  redis.call('HSETNX', K.life, 'seal', new_id)  -- stays for all lives, as sealed cursors do
  -- `settled` names an identity: under another one it is void.
  if fresh and not id and redis.call('EXISTS', K.members) == 0 then
    redis.call('HSET', K.life, 'settled', run_id .. '.' .. new_id)
  end
  local life, settled, seal, high = unpack(redis.call('HMGET', K.life, 'id', 'settled', 'seal', 'high'))
  return {life, settled, redis.call('GET', K.fence), seal, high}
end)
