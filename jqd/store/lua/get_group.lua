-- Returns the members of a group.
-- ARGV     now_ms, group, how many members to skip, and how many to return
-- Returns  when it was closed (ms) or 0; how many to skip for the next ones, 0: that was all; then ids of members in
--          the order in which they came; nil: there is no such group
-- Errors   none
-- Cost     O(members skipped and returned)
register('get_group', {'no-writes'}, function()
  local key, CLOSED = K.grouped .. ARGV[2], '!'
  local skip, most = tonumber(ARGV[3]), tonumber(ARGV[4])

  if redis.call('EXISTS', key) == 0 then
    return false
  end
  local members = redis.call('ZRANGE', key, 0, '+inf', 'BYSCORE', 'LIMIT', skip, most)
  local answer = {redis.call('ZSCORE', key, CLOSED) or '0', #members == most and skip + most or 0}
  for _, id in ipairs(members) do
    if id ~= CLOSED then
      answer[#answer + 1] = id
    end
  end
  return answer
end)
