-- Applies settings of a journal and moves its position, in one step. Of each kind and name the highest revision stays.
-- ARGV     now_ms, position field, from, to, then flat: kind NUL name, revision, packed setting
-- Returns  how many count now that did not before; nil when these were applied before
-- Errors   JQD_POSITION, JQD_STORE_CHANGED; none after the first write
-- Cost     O(rules · log rules)
register('apply_settings', {'allow-oom'}, function()
  local _, now_us = clock(ARGV[1])
  local field, from, to = ARGV[2], ARGV[3], ARGV[4]
  local FIRST = 5

  if not Position.at_position(field, from, to) then
    return false
  end
  local taken = 0
  for at = FIRST, #ARGV, 3 do
    if Rules.take_rule(ARGV[at], ARGV[at + 1], ARGV[at + 2], now_us) then
      taken = taken + 1
    end
  end
  redis.call('HSET', K.applied, field, to)
  return taken
end)
