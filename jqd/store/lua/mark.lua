#!lua flags=allow-oom
-- Writes something of no meaning: a connection that asks whether its last write is safe needs a write of its own.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms
-- Returns  how often that was done
-- Errors   JQD_WRONG_TYPE; none after the first write
-- Cost     O(1)
--@include fail keys
expect('life')
return redis.call('HINCRBY', K.life, 'marks', 1)
