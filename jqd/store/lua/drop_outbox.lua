#!lua flags=allow-oom
-- Takes followers out of the outbox that are in a journal.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, entries
-- Returns  how many were there
-- Errors   JQD_WRONG_TYPE; none after the first write
-- Cost     O(entries · log entries), and the bytes
--@include fail keys
expect('outbox')
return redis.call('ZREM', K.outbox, unpack(ARGV, 2))
