#!lua flags=allow-oom
-- Begins a new life: positions went back although the server is the same.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, id of the life that ends, id for the new one
-- Returns  1, or 0 when another life has begun already
-- Errors   JQD_WRONG_TYPE, JQD_BAD_VALUE; none after the first write
-- Cost     O(1)
--@include fail keys now forgotten
local _, now_us = clock(ARGV[1])
local old_id, new_id = ARGV[2], ARGV[3]

expect('life', 'fence')
if redis.call('HGET', K.life, 'id') ~= old_id then
  return 0
end
begin_life(new_id, now_us)
return 1
