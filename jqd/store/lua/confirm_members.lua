-- Confirms places in a group: their jobs are journaled, or will never be.
-- ARGV     now_ms, group, then per job: its token or nothing, its id or nothing: it was not pushed; "!": the group was
--          closed
-- Returns  ids that are no members: the group was closed without them and no place is left open, so something may wait
--          for it
-- Errors   none
-- Cost     O(jobs · log members)
register('confirm_members', {'allow-oom'}, function()
  local now_ms = clock(ARGV[1])
  local group = ARGV[2]
  local FIRST, FIELDS, CLOSED = 3, 2, '!'
  local key = K.grouped .. group

  local is_closed = redis.call('ZSCORE', key, CLOSED) and redis.call('ZCOUNT', key, '-inf', '(0') == 0
  local late = {}
  for at = FIRST, #ARGV, FIELDS do
    local token, id = ARGV[at], ARGV[at + 1]
    local had_place = token ~= '' and redis.call('ZREM', key, token) == 1
    if id == '' then
      -- its place is free again
    elseif had_place or not is_closed or redis.call('ZSCORE', key, id) then
      redis.call('ZADD', key, 'LT', now_ms, id)
    else
      late[#late + 1] = id
    end
  end
  if redis.call('EXISTS', key) == 1 then
    redis.call('ZADD', K.groups, now_ms, group)
  else
    redis.call('ZREM', K.groups, group)
  end
  return late
end)
