-- Begins a new life, because positions went back though the server is the same.
-- ARGV     now_ms, id of the life that ends, id for the new one
-- Returns  1, or 0 when another life has begun already
-- Errors   JQD_BAD_VALUE; none after the first write
-- Cost     O(1)
register('new_life', {'allow-oom'}, function()
  local _, now_us = clock(ARGV[1])
  local old_id, new_id = ARGV[2], ARGV[3]

  if redis.call('HGET', K.life, 'id') ~= old_id then
    return 0
  end
  Forgotten.begin_life(new_id, now_us, 0)
  return 1
end)
