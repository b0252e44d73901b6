-- Makes all notes to ask the parents of blocked jobs due: another partition may have forgotten who waits for its jobs,
-- or this one what it was told. Notes that rested because that partition was being restored rest no longer.
-- ARGV     now_ms, number of the other partition, its identity, what the last call returned or nothing, limit
-- Returns  what to give to the next call: an id, or RESTING; nothing: all are due, or were before under this identity
-- Errors   none
-- Cost     O(limit · log links), twice
register('ask_again', {'allow-oom'}, function()
  local now_ms = clock(ARGV[1])
  local field, identity, after, limit = 'asked:' .. tonumber(ARGV[2]), ARGV[3], ARGV[4], tonumber(ARGV[5])

  local RESTING = '!'  -- sorts before all ids

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
