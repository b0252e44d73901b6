-- Writes a counter: a connection that asks whether its last write is safe needs one of its own.
-- ARGV     now_ms
-- Returns  how often that was done
-- Errors   none
-- Cost     O(1)
register('mark', {'allow-oom'}, function()
  return redis.call('HINCRBY', K.life, 'marks', 1)
end)
