-- Moves a journal's position over a range without records of this lane.
-- ARGV     now_ms, position field, from, to, 1: there were some, which the journal deleted
-- Returns  to; nil when it stood there before
-- Errors   JQD_POSITION, JQD_STORE_CHANGED, JQD_BAD_VALUE; none after the first write
-- Cost     O(1)
register('skip', {'allow-oom'}, function()
  local field, from, to, is_gone = ARGV[2], ARGV[3], ARGV[4], ARGV[5] == '1'

  if not Position.at_position(field, from, to) then
    return false
  end
  if is_gone then
    Gone.note_gone(field, from, to)
  end
  redis.call('HSET', K.applied, field, to)
  return to
end)
