-- A partition may have forgotten who waits for its jobs, or this one what it was told of them: the parents of all
-- blocked jobs are to be asked again. What could not be done before, for that partition was being told what it had
-- forgotten, rests no longer.
-- ARGV     now_ms, number of that partition, its identity, after what to go on, as it was returned, or nothing, limit
-- Returns  after what to go on: an id, or RESTING; nothing: all of them are, or were before, for this identity
-- Errors   JQD_ARGUMENT
-- Cost     O(limit · log links), twice
register('ask_again', {'allow-oom'}, function()
  local now_ms = clock(ARGV[1])
  local field, identity, after, limit = 'asked:' .. number(ARGV[2], 'partition'), ARGV[3], ARGV[4],
    number(ARGV[5], 'limit')

  local RESTING = '!'  -- before all ids

  if redis.call('HGET', K.life, field) == identity then
    return ''
  end
  if after == '' or after == RESTING then
    local resting = redis.call('ZRANGE', K.links, '(' .. digits(now_ms), '+inf', 'BYSCORE', 'LIMIT', 0, limit)
    for _, entry in ipairs(resting) do
      redis.call('ZADD', K.links, now_ms, entry)
    end
    if #resting == limit then
      return RESTING
    end
  end
  local first = Order.rank_of(K.later, Counts.BLOCKED_MS, after, true)
  local ids = redis.call('ZRANGE', K.later, first, first + limit - 1)
  for _, id in ipairs(ids) do
    Counts.note_blocked(id, Counts.BLOCKED_MS, now_ms)
  end
  if #ids == limit then
    return ids[limit]
  end
  redis.call('HSET', K.life, field, identity)
  return ''
end)
