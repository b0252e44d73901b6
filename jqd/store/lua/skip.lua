#!lua flags=allow-oom
-- Moves a journal's position over a range that holds nothing of this lane.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, position field, from, to
-- Returns  to
-- Errors   JQD_POSITION, JQD_WRONG_TYPE, JQD_BAD_VALUE; none after the first write
-- Cost     O(1)
--@include fail keys position
local field, from, to = ARGV[2], ARGV[3], ARGV[4]

expect('applied')
if at_position(field, from, to) then
  redis.call('HSET', K.applied, field, to)
end
return to
